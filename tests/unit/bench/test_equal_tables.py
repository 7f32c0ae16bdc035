"""Two warehouses that are written without Spark: which of their tables the comparison calls equal."""

from __future__ import annotations

import datetime
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from arro3.core import Array, DataType, Field, Table, list_array, struct_array
from deltalake import write_deltalake

from bench import equal_tables
from bench.equal_tables import CannotCompare, Comparer, Comparison, Renames, main

SECRET = "4111 1111 1111 1111"
ROWS: list[dict[str, Any]] = [
    {"_run_id": "run", "topic": "orders", "offset": offset, "value": b"paid", "error": f"{SECRET} {offset}"}
    for offset in range(5)
]
TYPES = {
    "_run_id": DataType.string(),
    "topic": DataType.string(),
    "offset": DataType.int64(),
    "value": DataType.binary(),
    "error": DataType.string(),
    "extra": DataType.int32(),
    "offset_number": DataType.int64(),
}


def store(
    warehouse: Path,
    rows: Sequence[dict[str, Any]],
    into: str = "silver.dlq_records",
    types: Mapping[str, DataType] | None = None,
) -> Path:
    known = TYPES | dict(types or {})
    columns = {name: Array([row[name] for row in rows], known[name]) for name in rows[0]}
    write_deltalake(str(warehouse.joinpath(*into.split("."))), Table.from_pydict(columns), mode="append")
    return warehouse


def compared(base: Path, now: Path, *renames: str) -> dict[str, Comparison]:
    return {comparison.table: comparison for comparison in Comparer(Renames.parse(renames)).warehouses(base, now)}


def changed(place: int, **values: Any) -> list[dict[str, Any]]:
    return [row | values if number == place else row for number, row in enumerate(ROWS)]


def test_rows_in_another_order_and_of_another_run_are_equal(tmp_path: Path) -> None:
    base = store(tmp_path / "base", ROWS)
    now = store(tmp_path / "now", [row | {"_run_id": "other"} for row in reversed(ROWS[2:])])
    store(now, [{name: ROWS[item][name] for name in reversed(ROWS[item])} for item in (1, 0)])
    found = compared(base, now)["silver.dlq_records"]
    assert (found.is_equal, found.base, found.now) == (True, 5, 5)


@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        pytest.param(changed(3, value=b"refused"), "value", id="one value"),
        pytest.param(changed(3, value=None), "value", id="a value that is null"),
        pytest.param(ROWS[:4], "in base only", id="a missing row"),
        pytest.param([*ROWS, ROWS[1]], "1 copy in base, 2 copies in now", id="a row twice"),
        pytest.param([row | {"extra": 1} for row in ROWS], "column extra is in now only", id="one more column"),
    ],
)
def test_a_difference_is_found_and_no_value_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]], finding: str
) -> None:
    base, now = store(tmp_path / "base", ROWS), store(tmp_path / "now", rows)
    for item, other, words in ((base, now, finding), (now, base, "")):
        found = compared(item, other)["silver.dlq_records"]
        assert not found.is_equal
        assert words in "\n".join(found.findings)
        assert main(["--warehouses", str(item), str(other)]) == 1
    printed = capsys.readouterr()
    assert not any(value in printed.out + printed.err for value in (SECRET, "paid", "refused"))


def test_the_changed_column_of_a_row_is_named_alone(tmp_path: Path) -> None:
    base, now = store(tmp_path / "base", ROWS), store(tmp_path / "now", changed(3, error="other"))
    found = compared(base, now)["silver.dlq_records"]
    assert found.findings[-1] == "columns that differ between similar rows: error (1)"


def test_equal_warehouses_end_with_0_and_absent_ones_with_2(tmp_path: Path) -> None:
    base, now = store(tmp_path / "base", ROWS), store(tmp_path / "now", ROWS)
    assert main(["--warehouses", str(base), str(now)]) == 0
    assert main(["--warehouses", str(base), str(tmp_path / "nothing")]) == 2


def test_a_column_of_another_type_differs(tmp_path: Path) -> None:
    base, now = store(tmp_path / "base", ROWS), store(tmp_path / "now", ROWS, types={"offset": DataType.int32()})
    assert compared(base, now)["silver.dlq_records"].findings == ["column offset has another type"]


def test_a_table_of_one_version_differs_unless_it_is_renamed(tmp_path: Path) -> None:
    base, now = store(tmp_path / "base", ROWS), store(tmp_path / "now", ROWS, into="silver.dead_letters")
    assert [comparison.is_equal for comparison in compared(base, now).values()] == [False, False]
    renamed = compared(base, now, "silver.dlq_records=silver.dead_letters")
    assert [(comparison.table, comparison.is_equal) for comparison in renamed.values()] == [
        ("silver.dead_letters", True)
    ]


@pytest.mark.parametrize("of", ["silver.dlq_records", "silver.dead_letters"])
def test_a_column_is_renamed_under_either_name_of_its_table(tmp_path: Path, of: str) -> None:
    now = [{"offset_number" if name == "offset" else name: value for name, value in row.items()} for row in ROWS]
    base, after = store(tmp_path / "base", ROWS), store(tmp_path / "now", now, into="silver.dead_letters")
    renames = ("silver.dlq_records=silver.dead_letters", f"{of}.offset=offset_number")
    assert [comparison.is_equal for comparison in compared(base, after, *renames).values()] == [True]


@pytest.mark.parametrize("text", ["silver.x", "x=y", "silver.x.y=silver.x.z", "silver.x=", "silver.x=y"])
def test_other_renames_are_refused(text: str) -> None:
    with pytest.raises(CannotCompare):
        Renames.parse([text])


def test_quality_tables_name_what_was_renamed(tmp_path: Path) -> None:
    strings = dict.fromkeys(("table", "expectation", "run_id"), DataType.string())
    result = {"table": "silver.old", "expectation": "counts.not_null", "run_id": "1"}
    new = {"table": "silver.new", "expectation": "is_counted.not_null", "run_id": "2"}
    base = store(tmp_path / "base", [result], "quality.expectation_results", strings)
    now = store(tmp_path / "now", [new], "quality.expectation_results", strings)
    assert not compared(base, now)["quality.expectation_results"].is_equal
    renames = ("silver.old=silver.new", "silver.old.counts=is_counted")
    assert compared(base, now, *renames)["quality.expectation_results"].is_equal


@pytest.mark.parametrize("nested", [False, True])
def test_times_after_the_year_9999_are_compared_to_the_microsecond(tmp_path: Path, nested: bool) -> None:
    far = round(datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC).timestamp()) * 1_000_000 + 10**15
    times: Callable[[int], Array] = lambda micros: Array([micros], DataType.int64()).cast(  # noqa: E731
        DataType.timestamp("us", tz="UTC")
    )
    for name, micros in (("base", far), ("same", far), ("other", far + 1)):
        column = times(micros)
        if nested:
            struct = struct_array([column], fields=[Field("at", column.type, nullable=True)])
            column = list_array(Array([0, 1], DataType.int32()), struct)
        write_deltalake(str(tmp_path / name / "gold" / "x"), Table.from_pydict({"at": column}))
    assert compared(tmp_path / "base", tmp_path / "same")["gold.x"].is_equal
    assert not compared(tmp_path / "base", tmp_path / "other")["gold.x"].is_equal


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_version_is_a_commit_or_the_checkout_with_its_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    files = {"uv.lock": "package = []", "conf/ivy.xml": "<ivy/>", ".gitignore": ".venv", "old.txt": "before"}
    for name, text in (files | {"pipelines/__init__.py": "", "expectations/__init__.py": ""}).items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (project / ".venv").symlink_to(Path(sys.prefix))
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(project)]
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "First"]):
        subprocess.run([*git, *words], check=True)
    (project / "old.txt").write_text("after")
    (project / "new.txt").write_text("new")
    monkeypatch.setattr(equal_tables, "ROOT", project)

    base = equal_tables.checked_out("base", "HEAD", tmp_path / "base").checkout
    now = equal_tables.checked_out("now", None, tmp_path / "now").checkout
    assert ((base / "old.txt").read_text(), (base / "new.txt").exists()) == ("before", False)
    assert ((now / "old.txt").read_text(), (now / "new.txt").read_text()) == ("after", "new")
    assert (base / ".venv").resolve() == (now / ".venv").resolve() == Path(sys.prefix).resolve()
    for absent in ("no-such-revision", "--output=x"):
        with pytest.raises(CannotCompare) as refused:
            equal_tables.checked_out("base", absent, tmp_path / absent.strip("-"))
        assert refused.value.code == 2


def test_a_version_that_would_run_other_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    with pytest.raises(CannotCompare, match="its own code"):
        equal_tables.Version("empty", tmp_path).check()
