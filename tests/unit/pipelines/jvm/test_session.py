"""Options of the JVM: a user's choice of a garbage collector replaces ours."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from pipelines.jvm import launch
from pipelines.jvm.session import LONG_LIVED_JAVA, SHORT_LIVED_JAVA, with_options_of_user


@pytest.mark.parametrize("own", [SHORT_LIVED_JAVA, LONG_LIVED_JAVA], ids=["short", "long"])
@pytest.mark.parametrize("users", ["-XX:+UseG1GC", "-Dx=y -XX:+UseParallelGC -Xss2m", "-Dx=y"])
def test_java_starts_with_options_of_a_user_and_with_one_collector(own: tuple[str, ...], users: str) -> None:
    options = with_options_of_user(" ".join(("-Da='two  words'", *own)), users)

    java = subprocess.run(
        launch.command("-XX:+PrintFlagsFinal", "-version", options=shlex.split(options)),
        capture_output=True,
        text=True,
        check=False,
    )

    assert java.returncode == 0, java.stderr
    assert "two  words" in options
    chosen = [line.split()[1] for line in java.stdout.splitlines() if "command line" in line and "GC " in line]
    counting = users.split() if "GC" in users else own
    assert chosen == [option.removeprefix("-XX:+") for option in counting if "GC" in option]


def test_a_jvm_that_writes_an_archive_maps_none() -> None:
    own = "-Da='two  words' -XX:SharedArchiveFile='/a b/spark.jsa' -Xlog:disable"
    options = with_options_of_user(own, "-XX:ArchiveClassesAtExit=/c.jsa")
    assert shlex.split(options) == ["-Da=two  words", "-Xlog:disable", "-XX:ArchiveClassesAtExit=/c.jsa"]
