from __future__ import annotations

from pathlib import Path

import pytest

from pipelines import oversights
from pipelines.cli import main
from pipelines.errors import UsageError
from pipelines.settings import Settings, load


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["afterlog", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--landing", "{nowhere}"],
        ["run", "--warehouse", "{nowhere}/warehouse"],
        ["run", "--warehouse", "{file}"],
        ["sql", "SELECT 1", "--warehouse", "{nowhere}"],
        ["describe", "--group", "a", "--warehouse", "{nowhere}"],
        ["trace", "a:0:1", "--warehouse", "{nowhere}"],
        ["readmit", "silver.dlq_records", "--warehouse", "{nowhere}"],
        ["report", "--warehouse", "{nowhere}"],
        ["doctor", "--warehouse", "{nowhere}"],
    ],
    ids=lambda words: " ".join(words),
)
def test_a_place_that_is_named_and_not_there_is_a_mistake(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    places = {"nowhere": tmp_path / "nowhere", "file": file}

    code = command(monkeypatch, *(word.format(**places) for word in words))

    told = capsys.readouterr().err.splitlines()
    assert (code, len(told)) == (2, 1)
    assert str(tmp_path) in told[0]
    assert not (tmp_path / "nowhere").exists()


def test_a_place_of_the_environment_is_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_WAREHOUSE", str(tmp_path / "nowhere"))

    with pytest.raises(UsageError, match="does not exist"):
        oversights.require_places(load(), {"warehouse": None, "landing": None}, creates=False)
    oversights.require_places(load(), {"warehouse": None, "landing": None}, creates=True)


def test_places_of_the_settings_need_not_be_there(tmp_path: Path) -> None:
    settings = Settings(warehouse=str(tmp_path / "a"), landing=str(tmp_path / "b"))
    oversights.require_places(settings, {"warehouse": None, "landing": None}, creates=False)


def test_whoever_reads_topics_may_have_no_files(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    kafka = {"kafka": {"bootstrap_servers": "a:9092"}, "dlq": {"source": "kafka"}}

    oversights.require_places(load(landing=nowhere, **kafka), {"landing": nowhere}, creates=True)
    with pytest.raises(UsageError, match="does not exist"):
        oversights.require_places(load(landing=nowhere), {"landing": nowhere}, creates=True)


def test_a_uri_is_left_to_whoever_reads_it() -> None:
    settings = Settings(warehouse="abfss://somewhere/warehouse")
    oversights.require_places(settings, {"warehouse": settings.warehouse}, creates=False)


def test_what_has_no_effect_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landing = tmp_path / "landing"
    for name in ("dlq", "dlqs", "_truth", ".hidden", "whatever"):
        (landing / name).mkdir(parents=True)
    (landing / "records.jsonl").touch()
    (landing / "records.tmp").touch()
    for name in ("TOLRANCE", "GATES", "WHATEVER", "DEBUG", "LOCK__WAIT_SECONDS"):
        monkeypatch.setenv(f"AFTERLOG_{name}", "1")

    told = oversights.remarks(Settings(landing=str(landing)))

    assert len(told) == 6
    for sentence, name in zip(
        told, ("GATES", "TOLRANCE", "WHATEVER", "dlqs", "records.jsonl", "whatever"), strict=True
    ):
        assert name in sentence
    assert "did you mean AFTERLOG_TOLERANCE?" in told[1]
    assert "did you mean dlq/?" in told[3]


def test_many_strays_are_counted(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}.jsonl").touch()

    told = oversights.remarks(Settings(landing=str(tmp_path)))

    assert len(told) == oversights.MOST_NAMES + 1
    assert "15 more" in told[-1]
