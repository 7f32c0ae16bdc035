"""Afterlog's errors: each has an exit code and one sentence for the user."""

import errno
import re
from collections.abc import Mapping
from typing import ClassVar

from pipelines import installation

# Finds a checkpoint of a Delta log in Spark's and Hadoop's messages about files that they cannot read.
_CHECKPOINT = re.compile(
    r"(?:FAILED_READ_FILE|Checksum error|not a Parquet file|CORRUPT|corrupt|DELTA_CHECKPOINT)"
    r"[^\n]*?/([a-z]+)/([a-z_]+)/_delta_log/(?:_last_checkpoint|\d{20}\.checkpoint)"
    r"|DELTA_MISSING_PART_FILES"
)
# Finds a data file of a table in messages of Spark and of the reader without a JVM.
_DATA_FILE = re.compile(r"(?:FAILED_READ_FILE|CANNOT_READ_FILE)[^\n]*\.parquet|Parquet error")
_OF_TABLE = re.compile(r"/(bronze|silver|gold|quarantine|held|quality)/([a-z_]+)/[^/\s]+\.parquet")
_OPENING = "When a table was opened: "
# Finds that Hadoop cannot open a URI: it knows no class for its scheme, or the class is in no jar.
_FILE_SYSTEM = re.compile(
    r'No FileSystem for scheme "(?P<scheme>[^"\s]+)"'
    r"|Class (?P<class>org\.apache\.hadoop\.fs\.[\w.$]+|com\.google\.cloud\.hadoop\.[\w.$]+) not found"
)


class AfterlogError(Exception):
    """An error that a user can cause or fix; its text is one sentence that says what to do."""

    exit_code: ClassVar[int] = 2


class ContractBroken(AfterlogError):
    """A gate broke: more rows violate a contract than its tolerance allows."""

    exit_code: ClassVar[int] = 1


class UsageError(AfterlogError):
    """A flag, a setting, a query or an argument that cannot be used as given."""

    exit_code: ClassVar[int] = 2


class EnvironmentLacking(AfterlogError):
    """The machine lacks something: Java, jars, disk space, network, a free port."""

    exit_code: ClassVar[int] = 3


class WriterBusy(AfterlogError):
    """Another process writes to the same warehouse."""

    exit_code: ClassVar[int] = 4


class FeedIncomplete(AfterlogError):
    """A change feed lacks a commit that its table's log has: a defect of software, not of the data."""

    exit_code: ClassVar[int] = 1


class Unforeseen(AfterlogError):
    """An unexpected error; the sentence gives only its kind, as its message may quote a record."""

    exit_code: ClassVar[int] = 1


class ClustersLeft(AfterlogError):
    """Some of several clusters cannot be read, each for a reason of its own; nothing else was left out."""

    def __init__(self, of_clusters: Mapping[str, AfterlogError]) -> None:
        """Take the errors by cluster."""
        super().__init__(" ".join(f"Cluster {name}: {error}" for name, error in of_clusters.items()))
        self.of_clusters = dict(of_clusters)
        self.exit_code = max(error.exit_code for error in of_clusters.values())  # type: ignore[misc]


def unreadable_log(table: str | None) -> EnvironmentLacking:
    """Return the error for a Delta log that cannot be read; it refers to ``afterlog doctor``."""
    named = f"The Delta log of {table}" if table else "The Delta log of a table"
    return EnvironmentLacking(
        f"{named} cannot be read, as a checkpoint in it is damaged: `afterlog doctor` says which file, and what to do."
    )


def opening(error: Exception, table: str) -> Exception:
    """Return a reader's error with a note of the table whose log it could not read, for ``readable``."""
    error.add_note(f"{_OPENING}{table}")
    return error


def unopened(error: Exception) -> str | None:
    """Return the table whose log a reader could not read; None if the error is of another kind."""
    notes = getattr(error, "__notes__", ())
    return next((note.removeprefix(_OPENING) for note in notes if note.startswith(_OPENING)), None)


def of_unopened(error: Exception) -> str:
    """Return the sentence about a table whose log a reader could not read; raise an error of another kind again."""
    if unopened(error) is None:
        raise error
    return str(readable(error))


def readable(error: Exception) -> AfterlogError:
    """Turn any error into an AfterlogError, whose text is safe to show."""
    if isinstance(error, AfterlogError):
        return error
    if isinstance(error, ModuleNotFoundError) and (lacks := installation.lacks(error)):
        return EnvironmentLacking(lacks)
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "No space left on device" in str(error):
        return EnvironmentLacking(
            "The disk is full: free some space and run again; nothing that was written before is lost."
        )
    if damaged := _CHECKPOINT.search(str(error)):
        return unreadable_log(f"{damaged[1]}.{damaged[2]}" if damaged[1] else None)
    if found := _FILE_SYSTEM.search(str(error)):
        lacks = found["class"] or f"a file system for {found['scheme']}://"
        conf = "gs" if found["scheme"] == "gs" else "abfs" if "azurebfs" in lacks else None
        fetch = f"run `{installation.setup(conf)}`, " if conf else ""
        return EnvironmentLacking(
            f"Spark lacks {lacks}: {fetch}name its jars in spark.jars or spark.jars.packages under [spark] in the "
            "settings, or name another warehouse."
        )
    if named := unopened(error):
        return EnvironmentLacking(
            f"The Delta log of {named} cannot be read: `afterlog doctor` says what is wrong, and what to do."
        )
    if _DATA_FILE.search(str(error)):
        file = _OF_TABLE.search(str(error))
        named = f"{file[1]}.{file[2]}" if file else "a table"
        return EnvironmentLacking(
            f"A data file of {named} is missing or damaged: `afterlog doctor` says which file, and what to do."
        )
    condition = getattr(error, "getCondition", lambda: None)() or type(error).__name__
    return Unforeseen(
        f"Afterlog failed with {condition}; set AFTERLOG_DEBUG=1 to see all of it (it may show record contents)."
    )
