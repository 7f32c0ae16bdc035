"""Where the code, the project's directory and set-up's files are: in a checkout, or as an installed package.

Needs only Python, as set-up calls it.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

CONFIGURATIONS = ("spark", "broker", "s3", "gs", "abfs")
"""The configurations of conf/ivy.xml, whose jars set-up fetches."""

ROOT = Path(__file__).resolve().parents[1]
"""The directory of the code, conf/ and sql/: the checkout, or ``_app`` in the package, which nothing writes to."""
IS_CHECKOUT = ROOT.name != "_app"
PROJECT = ROOT if IS_CHECKOUT else Path(os.environ.get("AFTERLOG_DIRECTORY") or Path.cwd()).absolute()
"""The project's directory, below which relative paths of the settings are: the checkout, or the working directory.

``AFTERLOG_DIRECTORY`` names another one, as a process of Airflow works in any directory.
"""

COMMAND = Path(sys.executable).with_name("afterlog")
"""The command ``afterlog`` of this Python's environment."""

# The packages that not every installation has, by the names under which they are imported, and their extras.
_EXTRAS = {
    "airflow": "airflow",
    "botocore": "glue",
    "confluent_kafka": "kafka",
    "cryptography": "spark",
    "delta": "spark",
    "great_expectations": "spark",
    "opentelemetry": "otel",
    "pandas": "spark",
    "py4j": "spark",
    "pyspark": "spark",
}


def cache() -> Path:
    """Return the directory for downloads, which ``AFTERLOG_CACHE`` names."""
    users = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "afterlog"
    return Path(os.environ.get("AFTERLOG_CACHE") or (ROOT / ".cache" if IS_CHECKOUT else users)).expanduser().absolute()


def _made(name: str) -> Path:
    """Return where set-up puts what it makes for an installed version."""
    return cache() / version("afterlog") / name


JARS = ROOT / ".jars" if IS_CHECKOUT else _made("jars")
WRAPPERS = ROOT / ".cache" / "java" if IS_CHECKOUT else _made("java")


def settings_files() -> list[Path]:
    """Return where the settings file may be, the first that exists counts; the last one is shipped."""
    shipped = ROOT / "conf" / "afterlog.toml"
    if IS_CHECKOUT:
        return [shipped]
    users = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    return [
        *(directory / "afterlog.toml" for directory in (PROJECT, users / "afterlog", Path("/etc/afterlog"))),
        shipped,
    ]


def setup(conf: str = "") -> str:
    """Return the command that sets Afterlog up, or that fetches the jars of a configuration, too."""
    if not IS_CHECKOUT:
        return f"afterlog setup {conf}".rstrip()
    return "make setup" if conf in ("", "spark", "broker") else f"make setup-{conf}"


def install(package: str) -> str:
    """Return the command that installs a package that not every installation has, given its name for imports."""
    return "make setup" if IS_CHECKOUT else f"pip install 'afterlog[{_EXTRAS[package]}]'"


def lacks(error: ModuleNotFoundError) -> str | None:
    """Return a sentence about a package of an extra that cannot be imported; None for any other module."""
    package = (error.name or "").partition(".")[0]
    return f"{package} is not installed here; run `{install(package)}`." if package in _EXTRAS else None
