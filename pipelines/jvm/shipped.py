"""What a session gives to executors on a cluster: the jars, and the code of Python workers."""

import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from pipelines.settings import ROOT

JARS = "spark.jars"
PYTHON = "spark.pyspark.python"
_FOLDERS = ("expectations", "pipelines")
_NAME = "afterlog-code.zip"


def jars(class_paths: Iterable[str], chosen: Mapping[str, str]) -> str:
    """Return the jars of class paths, then those of the settings: executors fetch all of them from the driver."""
    ours = (os.fspath(jar) for path in class_paths for jar in sorted(Path(path).parent.glob("*.jar")))
    return ",".join([*ours, *filter(None, [chosen.get(JARS)])])


def python(chosen: Mapping[str, str]) -> str:
    """Return the Python of the workers, which is found on their machines: the one that the settings name, if any."""
    return chosen.get(PYTHON, "python3")


def code(directory: Path) -> Path:
    """Pack the modules that Python workers import, for the driver to serve, and return the file."""
    directory.mkdir(parents=True, exist_ok=True)
    packed = directory / _NAME
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in _FOLDERS:
            for module in sorted((ROOT / folder).rglob("*.py")):
                archive.write(module, module.relative_to(ROOT).as_posix())
    return packed
