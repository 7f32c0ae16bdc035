from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local import install
from pipelines.errors import EnvironmentLacking
from pipelines.jvm import jars


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "the project"
    (root / "conf").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[project]")
    (root / "uv.lock").write_text("version = 1")
    (root / "conf" / "ivy.xml").write_text("<ivy-module/>")
    return root


@pytest.fixture
def _offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Point package registries to a port on which nothing listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{closed.getsockname()[1]}/simple")
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        for variable in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
            monkeypatch.delenv(variable, raising=False)
        yield


def set_up(project: Path) -> None:
    """Create the files that a complete set-up leaves."""
    (project / ".venv" / "bin").mkdir(parents=True)
    (project / ".venv" / "bin" / "python").symlink_to(sys.executable)
    stamp = install._packages_wanted(project) if (project / "uv.lock").exists() else "-"
    (project / ".venv" / install._STAMP).write_text(stamp)


@pytest.mark.usefixtures("_offline")
def test_missing_network_is_one_sentence_and_leaves_no_stamp(project: Path) -> None:
    with pytest.raises(EnvironmentLacking) as caught:
        install.install(project)
    assert str(caught.value) == (
        "The Python packages cannot be fetched; check network and proxy, then run `make setup` again."
    )
    assert install._packages_there(project / ".venv") is None


def test_other_python_is_one_sentence(monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    with pytest.raises(EnvironmentLacking, match=r"^Afterlog runs on Python 3\.11, this is 3\.11"):
        install.install(project)


def test_too_little_space_is_said_before_anything_is_written(monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    monkeypatch.setattr(install, "NEEDED_BYTES", 10**18)
    with pytest.raises(
        EnvironmentLacking, match=r"^Set-up takes about 1\.9 GB and .*the project has \d+ MB; free some"
    ):
        install.install(project)
    assert not (project / ".venv").exists()


def test_the_packages_of_another_directory_stay_as_they_are(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "another project"
    set_up(other)
    (project / ".venv").symlink_to(other / ".venv")
    with pytest.raises(
        EnvironmentLacking, match=r"\.venv is a link, and set-up would replace the packages of .*another"
    ):
        install.install(project)
    assert (other / ".venv" / "bin" / "python").exists()
    assert install._packages_there(other / ".venv") is not None


def test_complete_setup_starts_nothing(monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    set_up(project)
    monkeypatch.setattr(jars, "wanted", lambda *_: ())
    monkeypatch.setattr(install.subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    install.install(project)


def test_all_modules_are_compiled_even_where_python_must_not_write_bytecode(
    monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    def installed(root: Path, environment: Path) -> None:
        set_up(root)
        package = environment / "lib" / "python3.11" / "site-packages" / "package"
        package.mkdir(parents=True)
        (package / "good.py").write_text("")
        (package / "bad.py").write_text("for another Python")
        (root / "pipelines").mkdir()
        (root / "pipelines" / "own.py").write_text("")

    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(install, "_install_packages", installed)
    monkeypatch.setattr(jars, "wanted", lambda *_: ())
    monkeypatch.setattr(install, "DUE", install.ROOT / "due")
    install.install(project, for_demo=True)
    compiled = {path.name.partition(".")[0] for path in project.rglob("*.pyc")}
    assert compiled == {"good", "own"}


def test_the_archive_of_classes_is_left_to_the_demo_and_made_by_the_next_setup_if_it_is_due(
    monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    set_up(project)
    started: list[str] = []
    monkeypatch.setattr(
        install.subprocess,
        "run",
        lambda command, **_: started.append(command[2]) or install.subprocess.CompletedProcess(command, 0),
    )
    monkeypatch.setattr(jars, "wanted", lambda *_: ("spark", "broker"))
    install.install(project, for_demo=True)
    assert started == ["pipelines.jvm.jars"]
    monkeypatch.setattr(jars, "wanted", lambda *_: ())
    install.install(project, for_demo=True)
    assert started == ["pipelines.jvm.jars"]
    install.install(project)
    assert started == ["pipelines.jvm.jars", "pipelines.commands.spark_archive"]


def test_the_jars_of_s3_are_fetched_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    set_up(project)
    started: list[list[str]] = []
    monkeypatch.setattr(
        install.subprocess,
        "run",
        lambda command, **_: started.append(command[1:]) or install.subprocess.CompletedProcess(command, 0),
    )
    monkeypatch.setattr(install, "DUE", install.ROOT / "due")
    monkeypatch.setattr(jars, "wanted", lambda directory, ivy_file, asked: asked[2:])
    install.install(project)
    install.install(project, stores=["s3"])
    assert started == [["-m", "pipelines.jvm.jars", "spark", "broker", "s3"]]


@pytest.mark.parametrize("change", ["pyproject.toml", "uv.lock", "python", "moved"])
def test_change_asks_for_another_installation(project: Path, change: str) -> None:
    set_up(project)
    assert install._packages_there(project / ".venv") == install._packages_wanted(project)
    match change:
        case "python":
            (project / ".venv" / "bin" / "python").unlink()
        case "moved":
            project = project.rename(project.with_name("moved"))
        case _:
            with (project / change).open("a") as file:
                file.write("\n# changed")
    assert install._packages_there(project / ".venv") != install._packages_wanted(project)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ("error: failed to write\n  Caused by: No space left on device (os error 28)", "The disk is full; "),
        (
            "error: Failed to fetch: `x`\n  Caused by: tcp connect error: refused",
            "The Python packages cannot be fetched; ",
        ),
        ("Error: Command '[...]-m', 'ensurepip'' returned non-zero exit status 1.", "This Python cannot make "),
        ("Using CPython\nerror: No `project` table found.\n", "The Python packages cannot be installed: No `project`"),
        ("", "The Python packages cannot be installed: "),
    ],
    ids=["disk", "network", "no venv package", "other", "silent"],
)
def test_what_tools_say_becomes_one_sentence(told: str, sentence: str) -> None:
    assert install._reason(told).startswith(sentence)
    assert "\n" not in install._reason(told)
