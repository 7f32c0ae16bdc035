"""What can go wrong, each with the exit code and the one sentence a user reads."""

import errno
import re
from typing import ClassVar

# A checkpoint of a Delta log in what Spark and Hadoop say of a file that they cannot read.
_CHECKPOINT = re.compile(
    r"(?:FAILED_READ_FILE|Checksum error|not a Parquet file|CORRUPT|corrupt|DELTA_CHECKPOINT)"
    r"[^\n]*?/([a-z]+)/([a-z_]+)/_delta_log/(?:_last_checkpoint|\d{20}\.checkpoint)"
    r"|DELTA_MISSING_PART_FILES"
)


class AfterlogError(Exception):
    """An error that a user can cause or mend; its text is one sentence that says what to do."""

    exit_code: ClassVar[int] = 2


class ContractBroken(AfterlogError):
    """A gate broke: more rows than the tolerance allows violate a contract."""

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
    """A change feed lacks a commit that its table's log holds: a defect, not the data's."""

    exit_code: ClassVar[int] = 1


class Unforeseen(AfterlogError):
    """Something that should never happen; its sentence names its kind only, as its text may quote a record."""

    exit_code: ClassVar[int] = 1


def unreadable_log(table: str | None) -> EnvironmentLacking:
    """Return the error of a Delta log that cannot be read; the doctor says more."""
    named = f"The Delta log of {table}" if table else "The Delta log of a table"
    return EnvironmentLacking(
        f"{named} cannot be read, as a checkpoint in it is damaged: `afterlog doctor` says which file, and what to do."
    )


def readable(error: Exception) -> AfterlogError:
    """Return an error as one whose text may be shown."""
    if isinstance(error, AfterlogError):
        return error
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "No space left on device" in str(error):
        return EnvironmentLacking(
            "The disk is full: free some space and run again; nothing that was written before is lost."
        )
    if damaged := _CHECKPOINT.search(str(error)):
        return unreadable_log(f"{damaged[1]}.{damaged[2]}" if damaged[1] else None)
    condition = getattr(error, "getCondition", lambda: None)() or type(error).__name__
    return Unforeseen(
        f"Afterlog failed with {condition}; set AFTERLOG_DEBUG=1 to see all of it (it may show record contents)."
    )
