from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipelines.errors import EnvironmentLacking
from pipelines.jvm import java, launch


def test_a_command_names_java_its_options_and_its_class_path() -> None:
    options = launch.options(*launch.LIGHT, heap="64m", log="broker-log4j2.properties")

    command = launch.command("Main", "an argument", options=options, class_path="a b/*")

    log = launch.CONF / "broker-log4j2.properties"
    assert log.is_file()
    assert command == [
        str(java.java_home() / "bin" / "java"),
        "-Xmx64m",
        f"-Dlog4j2.configurationFile={log.as_uri()}",
        *launch.LIGHT,
        *("-cp", "a b/*", "Main", "an argument"),
    ]


def test_such_a_command_runs() -> None:
    command = launch.command("-version", options=launch.options(*launch.LIGHT, heap="32m"))

    assert java.find().version in subprocess.run(command, capture_output=True, text=True, check=True).stderr


def test_a_java_that_does_not_start_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "java_home", lambda: tmp_path)

    with pytest.raises(EnvironmentLacking, match=f"^{tmp_path}/bin/java does not start: .*afterlog doctor"):
        launch.gateway("", launch.options(heap="32m"))


def test_jars_that_pyspark_ships() -> None:
    assert launch.pyspark_jars("py4j-*.jar", "ivy-*.jar")[0].name.startswith("py4j-")
    with pytest.raises(EnvironmentLacking, match="make setup"):
        launch.pyspark_jars("nothing-*.jar")
