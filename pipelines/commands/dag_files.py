"""A directory of an Airflow -> a file in it for each DAG, which finds the installed package and names the command."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from pipelines.catalog import FEEDS, POOL
from pipelines.errors import UsageError
from pipelines.installation import COMMAND, PROJECT
from pipelines.stores.directory import replace_text

DAGS = (*FEEDS, "replay", "maintain", "backup")
NEXT = f'Tasks wait until Airflow has their pool; create it once: `airflow pools set {POOL} 1 "One writer at a time"`.'
_MARK = "`afterlog dags` wrote this file and replaces it."
_TEXT = '''\
"""The DAG `{dag}` of Afterlog, for Airflow. {mark}"""

import os

import afterlog

os.environ.setdefault("AFTERLOG_COMMAND", {command!r})
os.environ.setdefault("AFTERLOG_DIRECTORY", {directory!r})
afterlog.find_code()

from dags.{dag} import dag
'''


def write(directory: Path, command: str | None) -> list[Path]:
    """Write ``afterlog_<dag>.py`` for each DAG and return the files.

    Tasks start ``command``, which may have arguments (None: the command of this process), in the present project's
    directory.

    Raises UsageError: a file of that name is not one of ours, or the directory cannot be written.
    """
    command = command or shlex.quote(os.fspath(COMMAND))
    directory = directory.expanduser().absolute()
    files = {dag: directory / f"afterlog_{dag}.py" for dag in DAGS}
    try:
        for file in files.values():
            if file.exists() and _MARK not in file.read_text(encoding="utf-8", errors="replace"):
                raise UsageError(
                    f"{file} is not a file that `afterlog dags` wrote: move it away, or name another place."
                )
        directory.mkdir(parents=True, exist_ok=True)
        for dag, file in files.items():
            text = _TEXT.format(dag=dag, mark=_MARK, command=command, directory=os.fspath(PROJECT))
            replace_text(file, text)
    except OSError as error:
        raise UsageError(f"{directory} cannot be written: {error.strerror}; name another directory.") from None
    return list(files.values())
