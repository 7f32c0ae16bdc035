"""A warehouse at a URI: every command of replays refuses it in one sentence, before it asks anything or anyone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.cli import main, replay

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
def test_a_warehouse_at_a_uri_is_refused(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["afterlog", "replay", *words, "--warehouse", tmp_path.as_uri()])
    with pytest.raises(SystemExit) as ended:
        main()
    out, told = capsys.readouterr()
    sentence = "Replays need a warehouse in a directory of this machine, and this one is at a URI: name one with"
    assert (ended.value.code, out) == (2, "")
    assert told == f"afterlog: {sentence} --warehouse.\n"
    assert not list(tmp_path.iterdir())


def test_these_are_all_commands() -> None:
    assert {words[0] for words in COMMANDS} == {command.name for command in replay.registered_commands}
