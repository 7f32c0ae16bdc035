"""Run the command line on another host over SSH: stream its log, return its last line of output.

Airflow's SSHOperator closes the command's input and leaves the command running when a task is killed; so this takes
only its hook, which opens the connection. docs/decisions/0080-run-tasks-elsewhere-by-the-same-operators.md says more.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow.providers.ssh.hooks.ssh import SSHHook
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException
from paramiko import SSHException  # type: ignore[import-untyped]

from dags.command import GRACE_SECONDS, TOLD_PLAINLY, Ended, Unreachable, last_line, printable
from pipelines.errors import UsageError
from pipelines.settings.airflow import Ssh

# The connection is the command's life line: its end, also that of a killed worker, is the end of the other side's
# standard input, on which the command is asked to end.
_SCRIPT = """\
cd {directory} || exit 2
exec 3<&0
{command} 3<&- </dev/null & run=$!
{{ cat <&3; kill -TERM $run; }} >/dev/null 2>&1 & guard=$!
wait $run; code=$?
kill $guard
exit $code"""


class SshCommand:
    """One run of the command line on another host, which ends with the connection."""

    def __init__(self, host: Ssh, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        """Take the arguments after the program's name, and variables, which the other host's processes can show."""
        self.argv = [*shlex.split(host.command), *arguments]
        self._host = host
        self._variables = {**TOLD_PLAINLY, **variables}
        self._client: Any = None
        self._input: Any = None

    def run(self, log: Callable[[str], None]) -> Ended:
        """Run the command to its end, passing on each line of its log as it comes.

        Raises UsageError: there is no such connection. Unreachable: the host cannot be reached, or no longer.
        """
        complaint = ""
        try:
            hook = SSHHook(ssh_conn_id=self._host.connection)
            with ThreadPoolExecutor(1) as pool, hook.get_conn() as self._client:  # a closed client ends the thread
                # The input stays open as long as its object lives.
                self._input, stdout, _ = self._client.exec_command(self._script())
                output = pool.submit(stdout.read)
                for line in stdout.channel.makefile_stderr("rb"):
                    if text := printable(line.decode("utf-8", "replace")).rstrip():
                        complaint = text
                        log(text)
                code = stdout.channel.recv_exit_status()
        except AirflowNotFoundException:
            raise UsageError(
                f"There is no Airflow connection {self._host.connection}: add it, or name another one under "
                "[airflow.ssh]."
            ) from None
        except (AirflowException, SSHException, OSError) as error:
            raise Unreachable(
                f"The host of the connection {self._host.connection} cannot be reached: {printable(str(error)).strip()}"
            ) from None
        if code < 0:
            raise Unreachable(f"The connection {self._host.connection} ended before the command did.")
        return Ended(code, last_line(output.result()), complaint)

    def kill(self) -> None:
        """Close the connection, on which the command ends."""
        # In a thread of its own: Airflow calls this from a signal handler, while the main thread may hold a lock.
        if self._client is not None:
            closing = threading.Thread(target=self._close, daemon=True)
            closing.start()
            closing.join(GRACE_SECONDS)

    def _close(self) -> None:
        with contextlib.suppress(Exception):
            self._client.close()

    def _script(self) -> str:
        variables = [f"{name}={value}" for name, value in self._variables.items()]
        return "exec sh -c " + shlex.quote(
            _SCRIPT.format(
                directory=shlex.quote(self._host.directory or "."),
                command=shlex.join(["env", *variables, *self.argv]),
            )
        )
