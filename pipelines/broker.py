""".jars/broker -> an Apache Kafka broker on this machine, for the demo, tests and experiments.

Only this machine can reach it. It writes dead letters for share groups (KIP-1191) and keeps the topologies that Kafka
Streams applications push (KIP-1331) in memory.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from pipelines.errors import EnvironmentLacking
from pipelines.jvm import jars, launch
from pipelines.settings import PROJECT
from pipelines.stores.directory import replace_text

DIRECTORY = PROJECT / ".cache" / "broker"
HOST = "127.0.0.1"
FEATURES = {"share.version": 2, "streams.version": 1, "transaction.version": 2}

_MAIN = "kafka.Kafka"
_START_SECONDS, _STOP_SECONDS = 90.0, 20.0
_SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
    "auto.create.topics.enable": "false",
    # One node, and little memory.
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 2,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 4,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    # Share groups give up soon, so that nobody waits minutes for a dead letter.
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.min.delivery.count.limit": 2,
    "group.share.delivery.count.limit": 3,
    "group.share.min.heartbeat.interval.ms": 500,
    "group.share.heartbeat.interval.ms": 1000,
    "group.initial.rebalance.delay.ms": 0,
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "group.streams.topology.description.plugin.class": (
        "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin"
    ),
}


@dataclass(frozen=True)
class Running:
    """A running broker: its process, where clients reach it, and its files."""

    pid: int
    bootstrap_servers: str
    secured_servers: str | None
    directory: str
    log: str
    request_log: str


class Broker:
    """A broker with its data, settings and logs in one directory.

    As a context manager it starts the broker and stops it at the end; a broker that already ran keeps running. The data
    directory is formatted once. A restart keeps the data, and keeps each port that is still free. ``options`` are
    server settings that override the settings of this module. The broker is node 1 of a new cluster, unless it
    ``joins`` the cluster of a running broker under another ``node`` id.
    """

    def __init__(
        self,
        directory: Path = DIRECTORY,
        *,
        port: int | None = None,
        options: Mapping[str, str] | None = None,
        node: int = 1,
        joins: Broker | None = None,
    ) -> None:
        """Describe a broker; `start` starts it and writes its files."""
        self.directory = directory.expanduser().absolute()
        self.data = self.directory / "data"
        self.log = self.directory / "logs" / "broker.log"
        self.request_log = self.directory / "logs" / "kafka-request.log"
        self._port = port
        self._options = dict(options or {})
        self._node = node
        self._controller = joins or self
        self._process: subprocess.Popen[bytes] | None = None
        self._started = False

    def __enter__(self) -> Self:
        """Start the broker, unless it runs already."""
        self._started = self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop the broker, unless it ran before the context."""
        if self._started:
            self.stop()

    @property
    def running(self) -> Running | None:
        """The process, addresses and files of the broker if it runs, else None."""
        state = self._state()
        pid = state.get("pid")
        if not isinstance(pid, int) or not self._is_ours(pid):
            return None
        ports = state["ports"]
        secured = ports.get("SASL_SSL")
        return Running(
            pid=pid,
            bootstrap_servers=f"{HOST}:{ports['PLAINTEXT']}",
            secured_servers=f"{HOST}:{secured}" if secured else None,
            directory=os.fspath(self.directory),
            log=os.fspath(self.log),
            request_log=os.fspath(self.request_log),
        )

    @property
    def bootstrap_servers(self) -> str:
        """The address of the listener without security; raises EnvironmentLacking: the broker does not run."""
        return self._found().bootstrap_servers

    def start(self, timeout_seconds: float = _START_SECONDS) -> bool:
        """Start the broker and wait until it answers; return False if it runs already.

        Raises EnvironmentLacking: no Java, no jars, a port in use, or a broker that does not start.
        """
        command = self._command()
        with self._alone():
            running = self.running
            if running is None:
                ports = self._ports()
                self._format(command, ports)
                self._write("server.properties", self._properties(ports, "data"))
                self._process = self._spawn([*command, _MAIN, "server.properties"], self.log)
                self._write("broker.json", json.dumps({"pid": self._process.pid, "ports": ports}))
            else:
                ports = self._state()["ports"]
            try:
                self._await_answer(ports["PLAINTEXT"], timeout_seconds)
            except BaseException:
                if running is None:
                    self._end(signal.SIGKILL)
                raise
        return running is None

    def stop(self) -> bool:
        """Stop the broker with TERM, with KILL if it does not end in time; return False if it did not run."""
        if not self.directory.is_dir():
            return False
        with self._alone():
            ran = self.running is not None
            self._end(signal.SIGTERM)
        return ran

    def kill(self) -> None:
        """Kill the broker as a crash does: it flushes nothing and tells no client."""
        with self._alone():
            self._end(signal.SIGKILL)

    def _found(self) -> Running:
        if running := self.running:
            return running
        raise EnvironmentLacking(f"No broker runs in {self.directory}; `afterlog broker start` starts one.")

    def _command(self) -> list[str]:
        """Return the Java command with the broker's class path; the caller adds the main class."""
        options = launch.options(*launch.LIGHT, "-Duser.timezone=UTC", heap="512m", log="broker-log4j2.properties")
        return launch.command(options=options, class_path=jars.class_path("broker"))

    def _properties(self, ports: Mapping[str, int], data: str) -> str:
        """Return the text of the server's settings, with a data path relative to the broker's directory."""
        listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
        controller = self._controller
        voter = ports["CONTROLLER"] if controller is self else controller._state()["ports"]["CONTROLLER"]
        settings = {
            **_SETTINGS,
            "process.roles": "broker,controller" if controller is self else "broker",
            "node.id": self._node,
            "controller.quorum.voters": f"{controller._node}@{HOST}:{voter}",
            "listeners": listeners,
            "advertised.listeners": ",".join(part for part in listeners.split(",") if "CONTROLLER" not in part),
            "log.dirs": data,
            **self._options,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _format(self, command: list[str], ports: Mapping[str, int]) -> None:
        """Format the data directory once, under a temporary name until the formatting is complete."""
        if self.data.exists():
            return
        unfinished = "data.arriving"
        shutil.rmtree(self.directory / unfinished, ignore_errors=True)
        self._write("format.properties", self._properties(ports, unfinished))
        features = [part for name, level in FEATURES.items() for part in ("--feature", f"{name}={level}")]
        arguments = ["format", "--cluster-id", self._cluster_id(), "--config", "format.properties", *features]
        log = self.log.with_name("format.log")
        if self._spawn([*command, "kafka.tools.StorageTool", *arguments], log).wait():
            raise EnvironmentLacking(f"Kafka cannot format {self.data}; {log} says why.")
        (self.directory / unfinished).rename(self.data)

    def _cluster_id(self) -> str:
        """Return the id of the cluster to join, or a new id, which never begins with "-"."""
        if self._controller is self:
            return base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        kept = (self._controller.data / "meta.properties").read_text(encoding="utf-8")
        return next(line for line in kept.splitlines() if line.startswith("cluster.id=")).partition("=")[2]

    def _spawn(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a Java command in a session of its own, with its output in a log file."""
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") as out:
            return subprocess.Popen(
                command,
                cwd=self.directory,
                env={**os.environ, "MALLOC_ARENA_MAX": "2"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _listeners(self) -> list[str]:
        return ["PLAINTEXT", *(["CONTROLLER"] if self._controller is self else [])]

    def _ports(self) -> dict[str, int]:
        """Return a port for each listener: the requested port, else the port of the last start, else any free port."""
        names = self._listeners()
        last = self._state().get("ports", {})
        with contextlib.ExitStack() as claimed:  # all sockets stay bound until the end, so that no port is chosen twice
            ports = {}
            for name in names:
                wanted = self._port if name == "PLAINTEXT" and self._port else last.get(name, 0)
                probe = claimed.enter_context(socket.socket())
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, wanted))
                except OSError as error:
                    if wanted == self._port:
                        raise EnvironmentLacking(
                            f"Port {wanted} cannot be used ({error.strerror}); choose another one, or none."
                        ) from None
                    probe.bind((HOST, 0))
                ports[name] = probe.getsockname()[1]
        return ports

    def _await_answer(self, port: int, timeout_seconds: float) -> None:
        until = time.monotonic() + timeout_seconds
        while not _answers(port):
            if not self.running:
                raise EnvironmentLacking(f"The broker ended while it started; {self.log} says why.")
            if time.monotonic() > until:
                raise EnvironmentLacking(f"The broker did not answer in {timeout_seconds:.0f} s; {self.log} says why.")
            time.sleep(0.1)

    def _end(self, number: signal.Signals) -> None:
        """Send the process a signal, kill it if it does not end in time, and record that no broker runs."""
        state = self._state()
        pid = state.get("pid")
        if pid is None:
            return
        for each in (number, signal.SIGKILL):
            until = time.monotonic() + _STOP_SECONDS
            if self._is_ours(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, each)
            while self._is_ours(pid) and time.monotonic() < until:
                time.sleep(0.1)
        if self._process:
            self._process.wait()
            self._process = None
        self._write("broker.json", json.dumps({**state, "pid": None}))

    def _is_ours(self, pid: int) -> bool:
        """Tell whether a process is this broker, because the system reuses process ids."""
        if self._process and self._process.pid == pid:
            return self._process.poll() is None
        try:
            process = psutil.Process(pid)
            return _MAIN in process.cmdline() and process.cwd() == os.fspath(self.directory.resolve())
        except psutil.Error:  # also a zombie that nobody has waited for yet
            return False

    def _state(self) -> dict[str, Any]:
        try:
            state = json.loads((self.directory / "broker.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def _write(self, name: str, text: str) -> None:
        replace_text(self.directory / name, text)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the directory's lock, so that no two commands start or stop the broker at once."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            lock = (self.directory / ".lock").open("w")
        except OSError as error:
            raise EnvironmentLacking(
                f"The broker's directory {self.directory} cannot be written ({error.strerror}): name another one."
            ) from None
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _answers(port: int) -> bool:
    """Tell whether the broker is up: its Metadata response (version 1) must list the broker itself."""
    client, host = b"afterlog", HOST.encode()
    request = struct.pack(f">hhih{len(client)}si", 3, 1, 1, len(client), client, 0)
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (length,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            answer = connection.recv(length, socket.MSG_WAITALL)
    except (OSError, struct.error):  # the broker closed the connection
        return False
    return struct.pack(f">h{len(host)}si", len(host), host, port) in answer
