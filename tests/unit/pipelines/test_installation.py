"""Where the files of an installed package are; tests/e2e/test_wheel.py installs one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelines import installation
from pipelines.cli import app
from pipelines.commands.init import init
from pipelines.errors import EnvironmentLacking, UsageError, readable
from pipelines.settings import ROOT, settings_file


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory with those of a user whose Afterlog is an installed package."""
    monkeypatch.setattr(installation, "IS_CHECKOUT", False)
    monkeypatch.setattr(installation, "PROJECT", tmp_path / "work")
    monkeypatch.setenv("XDG_CONFIG_HOME", os.fspath(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    monkeypatch.delenv("AFTERLOG_CACHE", raising=False)
    monkeypatch.delenv("AFTERLOG_SETTINGS", raising=False)
    return tmp_path


def test_the_settings_of_an_installed_package_are_found_in_order(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings_file() in (Path("/etc/afterlog/afterlog.toml"), ROOT / "conf" / "afterlog.toml")
    users = init(installed / "config" / "afterlog")
    assert settings_file() == users
    here = init(installed / "work")
    assert settings_file() == here
    monkeypatch.setenv("AFTERLOG_SETTINGS", os.fspath(users))
    assert settings_file() == users


def test_a_checkout_reads_its_own_settings_wherever_a_command_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    init(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AFTERLOG_SETTINGS", raising=False)
    assert settings_file() == ROOT / "conf" / "afterlog.toml"


def test_config_names_the_settings_of_the_command_and_its_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AFTERLOG_SETTINGS", "/nowhere.toml")
    (tmp_path / "own.toml").write_text('warehouse = "/nowhere/own"\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"^The warehouse /nowhere/own does not exist"):
        app(["--config", "own.toml", "top"], standalone_mode=False)
    assert os.environ["AFTERLOG_SETTINGS"] == f"{tmp_path}/own.toml"
    with pytest.raises(UsageError, match=r"none\.toml does not exist: correct --config or AFTERLOG_SETTINGS\.$"):
        app(["--config", "none.toml", "top"], standalone_mode=False)


def test_init_never_replaces_a_file(tmp_path: Path) -> None:
    file = init(tmp_path / "new")
    assert file.read_bytes() == (ROOT / "conf" / "afterlog.toml").read_bytes()
    file.write_text("# mine\n")
    with pytest.raises(UsageError, match=r"afterlog\.toml is there already: edit it, or name another directory\.$"):
        init(tmp_path / "new")
    assert file.read_text() == "# mine\n"
    with pytest.raises(UsageError, match=r"afterlog\.toml cannot be written: File exists; "):
        init(file)


def test_downloads_go_to_the_users_cache(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installation.cache() == installed / "cache" / "afterlog"
    monkeypatch.setenv("AFTERLOG_CACHE", "~/elsewhere")
    assert installation.cache() == Path.home() / "elsewhere"


@pytest.mark.usefixtures("installed")
def test_commands_that_an_installed_package_names() -> None:
    assert [installation.setup(), installation.setup("s3")] == ["afterlog setup", "afterlog setup s3"]
    assert installation.install("confluent_kafka") == "pip install 'afterlog[kafka]'"


def test_commands_that_a_checkout_names() -> None:
    assert [installation.setup(conf) for conf in ("", "broker", "s3")] == ["make setup", "make setup", "make setup-s3"]
    assert installation.install("pyspark") == "make setup"


@pytest.mark.usefixtures("installed")
def test_a_missing_package_of_an_extra_is_one_sentence() -> None:
    error = readable(ModuleNotFoundError("No module named 'pyspark.sql'", name="pyspark.sql"))
    assert isinstance(error, EnvironmentLacking)
    assert str(error) == "pyspark is not installed here; run `pip install 'afterlog[spark]'`."
    assert not isinstance(readable(ModuleNotFoundError(name="pipelines.nothing")), EnvironmentLacking)
