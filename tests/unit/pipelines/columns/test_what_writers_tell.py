"""The table of docs/writers.md is the one that the profiles make."""

from __future__ import annotations

from pipelines.columns.profiles import profiles_of
from pipelines.columns.what_writers_tell import NEEDED, table
from pipelines.settings import ROOT, Dlq

BEGIN, END = "<!-- made by: python -m pipelines.columns.what_writers_tell -->\n", "\n<!-- end -->"


def test_the_document_has_the_table_of_the_profiles() -> None:
    text = (ROOT / "docs" / "writers.md").read_text()
    assert text.split(BEGIN)[1].split(END)[0] == table(profiles_of(Dlq()))


def test_each_row_says_what_is_told_and_what_is_not() -> None:
    for profile, row in zip(profiles_of(Dlq()), table(profiles_of(Dlq())).splitlines()[2:], strict=True):
        _, writer, name, keys, told, missing, _, _ = (cell.strip() for cell in row.split("|"))
        assert (writer, name) == (profile.writer, f"`{profile.name}`")
        assert keys
        for word in NEEDED:
            is_told = word in told.split(", ")
            stands_in = word == "group" and {"connector", "application"} & {*told.split(", ")}
            assert is_told or stands_in or word in missing.split(", ")
