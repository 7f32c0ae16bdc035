"""A warehouse that only Spark opens: every command of replays refuses it in one sentence, before it asks anyone."""

from __future__ import annotations

import pytest

from pipelines.cli import main, replays

COMMANDS = [
    ["plan", "--incident", "7KQ2-MD4X"],
    ["plan", "--where", "true", "--dry-run"],
    ["plan", "--by-rules"],
    ["explain", "dlq.orders:0:5"],
    ["run", "ZMH2-MNFW"],
    ["run", "ZMH2-MNFW", "--dry-run"],
    ["resume", "ZMH2-MNFW"],
    ["pause", "ZMH2-MNFW"],
    ["cancel", "ZMH2-MNFW"],
    ["status", "ZMH2-MNFW"],
    ["plans"],
    ["show", "ZMH2-MNFW", "--format", "json"],
    ["discard", "--record", "dlq.orders:0:5"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_warehouse_that_only_spark_opens_is_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = "hdfs://name/warehouse"
    monkeypatch.setattr("sys.argv", ["afterlog", "replay", *words, "--warehouse", place])
    with pytest.raises(SystemExit) as ended:
        main()
    out, told = capsys.readouterr()
    sentence = f"Only Spark opens {place}, and replays are made without it: name a warehouse in a directory or on an"
    assert (ended.value.code, out) == (2, "")
    assert told == f"afterlog: {sentence} object store.\n"


def test_these_are_all_commands() -> None:
    assert {words[0] for words in COMMANDS} == {command.name for command in replays.app.registered_commands}
