"""OpenSSH's server on this machine, for this user, with keys of its own; and the Airflow connection that reaches it."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

SSHD = shutil.which("sshd", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
MISSING = "sshd is not installed (openssh-server on Debian)"


@contextlib.contextmanager
def server(directory: Path) -> Iterator[str]:
    """Yield the JSON of an Airflow connection to a server that lives as long as the context."""
    assert SSHD
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / name], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = directory / "sshd_config"
    settings.write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {directory}/host\nAuthorizedKeysFile {directory}/client.pub\n"
        f"PidFile {directory}/sshd.pid\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n"
    )
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd's processes without rights live
    with (directory / "sshd.log").open("wb") as log:
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", settings], stderr=log)
    try:
        until = time.monotonic() + 10
        while not _answers(port):
            assert process.poll() is None, (directory / "sshd.log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        key = (directory / "host.pub").read_text().split()[1]
        yield json.dumps(
            {
                "conn_type": "ssh",
                "host": "127.0.0.1",
                "port": port,
                "login": getpass.getuser(),
                "extra": {"key_file": str(directory / "client"), "host_key": f"ssh-ed25519 {key}"},
            }
        )
    finally:
        process.terminate()
        process.wait(timeout=10)


def _answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0
