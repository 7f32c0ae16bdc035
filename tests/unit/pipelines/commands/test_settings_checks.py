from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.cli import main
from pipelines.commands import settings_checks
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
        ["doctor", "--warehouse", "{nowhere}/warehouse"],
        ["run", "--warehouse", "{file}/below"],
        ["report", "--warehouse", "{file}"],
        ["run", "--landing", "{file}"],
        ["doctor", "--landing", "{nowhere}"],
        ["doctor", "--landing", "{file}"],
        ["report", "--landing", "{nowhere}"],
        ["rebuild", "gold.dlq_summary", "--warehouse", "{nowhere}"],
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


@pytest.mark.parametrize("words", [["run"], ["doctor"], ["report"]], ids=" ".join)
@pytest.mark.parametrize("name", ["warehouse", "landing"])
@pytest.mark.parametrize("said_by", ["environment", "settings file"])
def test_a_place_that_the_environment_or_the_settings_file_names_is_named_too(
    said_by: str,
    name: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "afterlog.toml"
    nowhere = tmp_path / "nowhere" / "below"
    file.write_text(f'{name} = "{nowhere}"\n' if said_by == "settings file" else "")
    monkeypatch.setenv("AFTERLOG_SETTINGS", str(file))
    if said_by == "environment":
        monkeypatch.setenv(f"AFTERLOG_{name.upper()}", str(nowhere))

    assert command(monkeypatch, *words) == 2

    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert str(nowhere) in told[0]
    assert not nowhere.parent.exists()


def test_a_run_makes_a_warehouse_whose_parent_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_WAREHOUSE", str(tmp_path / "nowhere"))

    with pytest.raises(UsageError, match="does not exist"):
        settings_checks.require_locations(load(), {"warehouse": None, "landing": None}, creates=False)
    settings_checks.require_locations(load(), {"warehouse": None, "landing": None}, creates=True)


def test_the_default_places_need_not_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.settings.PROJECT", tmp_path)
    settings = load()
    assert settings.landing == str(tmp_path / "landing")
    settings_checks.require_locations(settings, {"warehouse": None, "landing": None}, creates=False, lands=True)
    (tmp_path / "landing").touch()
    with pytest.raises(UsageError, match="is not a directory"):
        settings_checks.require_locations(settings, {"warehouse": None, "landing": None}, creates=True)


def test_a_place_that_cannot_be_looked_at_is_one_sentence(tmp_path: Path) -> None:
    settings = load(warehouse=str(tmp_path / ("a" * 300)))
    with pytest.raises(UsageError, match="cannot be looked at: File name too long"):
        settings_checks.require_locations(settings, {"warehouse": settings.warehouse}, creates=False)


@pytest.mark.parametrize(
    "words",
    [["trace", "a:0:1"], ["describe", "--group", "a"], ["readmit", "bronze.dlq_records"]],
    ids=lambda words: words[0],
)
def test_each_command_says_once_what_has_no_effect(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AFTERLOG_TOLRANCE", "1")
    monkeypatch.setenv("afterlog_tolerance", "1")
    command(monkeypatch, *words, "--warehouse", str(tmp_path))
    told = [line for line in capsys.readouterr().err.splitlines() if "no effect" in line]
    assert len(told) == 2
    assert "did you mean AFTERLOG_TOLERANCE?" in told[0]
    assert "afterlog_tolerance has no effect: write AFTERLOG_ in capitals." in told[1]


def test_whoever_reads_topics_may_have_no_files(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    kafka = {"kafka": {"bootstrap_servers": "a:9092"}, "dlq": {"source": "kafka"}}

    settings_checks.require_locations(load(landing=nowhere, **kafka), {"landing": nowhere}, creates=True)
    with pytest.raises(UsageError, match="does not exist"):
        settings_checks.require_locations(load(landing=nowhere), {"landing": nowhere}, creates=True)


def test_a_uri_is_left_to_whoever_reads_it() -> None:
    settings = Settings(warehouse="abfss://somewhere/warehouse")
    settings_checks.require_locations(settings, {"warehouse": settings.warehouse}, creates=False)


def test_what_has_no_effect_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landing = tmp_path / "landing"
    for name in ("dlq", "dlqs", "_truth", ".hidden", "whatever"):
        (landing / name).mkdir(parents=True)
    (landing / "records.jsonl").touch()
    (landing / "records.tmp").touch()
    (landing / "segments").touch()
    for name in ("TOLRANCE", "GATES", "WHATEVER", "DEBUG", "LOCK__WAIT_SECONDS"):
        monkeypatch.setenv(f"AFTERLOG_{name}", "1")

    told = [sentence for _, sentence in settings_checks.unknown_variables()]
    told += settings_checks.remarks(Settings(landing=str(landing)))

    assert len(told) == 7
    for sentence, name in zip(
        told, ("GATES", "TOLRANCE", "WHATEVER", "dlqs", "records.jsonl", "segments", "whatever"), strict=True
    ):
        assert name in sentence
    assert "did you mean AFTERLOG_TOLERANCE?" in told[1]
    assert "did you mean dlq/?" in told[3]
    assert "is not a directory" in told[5]


@pytest.mark.parametrize(
    ("table", "ending"),
    [
        pytest.param("silver.dlq_record", "; did you mean silver.dlq_records?", id="mistyped"),
        pytest.param("bronze.dlq_records", "?", id="no gate"),
        pytest.param("gold.dlq_summary", ".", id="facts have no tolerance"),
    ],
)
def test_a_gate_without_effect_is_told(tmp_path: Path, table: str, ending: str) -> None:
    text, *others = settings_checks.remarks(Settings(landing=str(tmp_path), gates={table: {"tolerance": 1.0}}))
    assert text.startswith(f'[gates."{table}"] has no effect: no gate of that name has a tolerance')
    assert text.endswith(ending)
    assert not others


def test_a_gate_with_an_effect_is_not_told(tmp_path: Path) -> None:
    settings = Settings(landing=str(tmp_path), gates={"silver.dlq_records": {"tolerance": 1.0}})
    assert settings_checks.remarks(settings) == []


def test_many_strays_are_counted(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}.jsonl").touch()

    told = settings_checks.remarks(Settings(landing=str(tmp_path)))

    assert len(told) == settings_checks.MOST_NAMES + 1
    assert "15 more" in told[-1]
