"""What can go wrong, each with the exit code and the one sentence a user reads."""

from typing import ClassVar


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
