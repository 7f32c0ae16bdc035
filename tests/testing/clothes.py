"""Events in the layouts and wrappers in which people have brokers' logs, as the programs that print them do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Logged:
    """An event: its time in UTC, the broker's clock, and what it says; the stack trace can be empty."""

    at: datetime
    level: str
    thread: str
    logger: str
    message: str
    stack: str
    offset: timedelta = timedelta()

    @property
    def text(self) -> str:
        """The message and the stack trace."""
        return f"{self.message}\n{self.stack}" if self.stack else self.message

    def clock(self, form: str = "%Y-%m-%d %H:%M:%S", mark: str = ",") -> str:
        """The time on the broker's clock, with milliseconds unless ``mark`` is empty."""
        local = self.at + self.offset
        return local.strftime(form) + (f"{mark}{local.microsecond // 1000:03}" if mark else "")

    def zone(self) -> str:
        """The offset of the broker's clock, as ISO 8601 writes it."""
        minutes = abs(self.offset) // timedelta(minutes=1)
        return f"{'-' if self.offset < timedelta() else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _after(event: Logged, line: str) -> str:
    return f"{line}\n{event.stack}" if event.stack else line


def _short(event: Logged) -> str:
    return event.logger.rpartition(".")[2]


@dataclass(frozen=True)
class Layout:
    """A printer of events, and what it leaves out; ``pattern`` is what prints so in log4j's language."""

    pattern: str
    print: Callable[[Logged], str]
    has_thread: bool = True
    has_fraction: bool = True
    has_zone: bool = False
    has_short_logger: bool = False


def _json(event: Logged, **members: object) -> str:
    return json.dumps({name: value for name, value in members.items() if value is not None}, ensure_ascii=False)


def _utc(event: Logged) -> str:
    return f"{event.at:%Y-%m-%dT%H:%M:%S}.{event.at.microsecond // 1000:03}Z"


LAYOUTS = {
    # config/log4j2.yaml of Apache Kafka 4; confluentinc/kafka-images, log4j2.yaml of cp-kafka
    "kafka": Layout(
        "[%d] %p %m (%c)%n",
        lambda item: _after(item, f"[{item.clock()}] {item.level} {item.message} ({item.logger})"),
        has_thread=False,
    ),
    # strimzi-kafka-operator: documentation of "External logging", and its default since log4j2
    "strimzi": Layout(
        "%d{yyyy-MM-dd HH:mm:ss} %-5p [%t] %c{1}:%L - %m%n",
        lambda item: _after(
            item, f"{item.clock(mark='')} {item.level:5} [{item.thread}] {_short(item)}:66 - {item.message}"
        ),
        has_fraction=False,
        has_short_logger=True,
    ),
    # strimzi-kafka-operator, cluster-operator/src/main/resources/default-logging/KafkaCluster.log4j1.properties
    "strimzi of old": Layout(
        "%d{ISO8601} %p %m (%c) [%t]%n",
        lambda item: _after(item, f"{item.clock()} {item.level} {item.message} ({item.logger}) [{item.thread}]"),
    ),
    # log4j2's own sample pattern, with a date: "%d [%t] %-5level %logger - %msg%n"
    "thread first": Layout(
        "%d{yyyy-MM-dd HH:mm:ss.SSS} [%t] %-5p %c - %m%n",
        lambda item: _after(
            item, f"{item.clock(mark='.')} [{item.thread}] {item.level:5} {item.logger} - {item.message}"
        ),
    ),
    "level first": Layout(
        "%-5p %d [%t] %c{1}:%L - %m%n",
        lambda item: _after(item, f"{item.level:5} {item.clock()} [{item.thread}] {_short(item)}:7 - {item.message}"),
        has_short_logger=True,
    ),
    "dates with a zone": Layout(
        "%d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %-5p %c:%L - %m%n",
        lambda item: _after(
            item,
            f"{item.clock('%Y-%m-%dT%H:%M:%S', '.')}{item.zone()} {item.level:5} {item.logger}:66 - {item.message}",
        ),
        has_thread=False,
        has_zone=True,
    ),
    # apache/logging-log4j2, log4j-layout-template-json: LogstashJsonEventLayoutV1.json
    "logstash": Layout(
        "",
        lambda item: _json(
            item,
            **{"@timestamp": _utc(item), "@version": 1, "source_host": "kafka-3", "level": item.level},
            thread_name=item.thread,
            logger_name=item.logger,
            message=item.message,
            exception={"stacktrace": item.stack + "\n"} if item.stack else None,
        ),
        has_zone=True,
    ),
    # logstash/log4j-jsonevent-layout: JSONEventLayoutV0.java
    "logstash of old": Layout(
        "",
        lambda item: _json(
            item,
            **{"@timestamp": _utc(item), "@message": item.message, "@source_host": "kafka-3"},
            **{
                "@fields": {"level": item.level, "loggerName": item.logger, "threadName": item.thread}
                | ({"exception": {"stacktrace": item.stack}} if item.stack else {})
            },
        ),
        has_zone=True,
    ),
    # apache/logging-log4j2, log4j-layout-template-json: EcsLayout.json
    "ecs": Layout(
        "",
        lambda item: _json(
            item,
            **{"@timestamp": _utc(item), "ecs.version": "1.2.0", "log.level": item.level, "message": item.message},
            **{"process.thread.name": item.thread, "log.logger": item.logger},
            **({"error.stack_trace": item.stack} if item.stack else {}),
        ),
        has_zone=True,
    ),
    # apache/logging-log4j2, log4j-layout-template-json: JsonLayout.json, which is as JsonLayout of log4j2
    "log4j2 json": Layout(
        "",
        lambda item: _json(
            item,
            instant={
                "epochSecond": (item.at - EPOCH) // timedelta(seconds=1),
                "nanoOfSecond": item.at.microsecond * 1000,
            },
            thread=item.thread,
            level=item.level,
            loggerName=item.logger,
            message=item.message,
            thrown={"extendedStackTrace": item.stack} if item.stack else None,
            endOfBatch=False,
        ),
        has_zone=True,
    ),
    # apache/logging-log4j2, log4j-layout-template-json: GcpLayout.json
    "google": Layout(
        "",
        lambda item: _json(
            item,
            timestamp=_utc(item),
            severity=item.level,
            message=item.message,
            _exception={"stackTrace": item.stack} if item.stack else None,
            _thread=item.thread,
            _logger=item.logger,
        ),
        has_zone=True,
    ),
}

Wrapper = Callable[[list[tuple[str, datetime]], int], Iterator[str]]
"""Wraps lines, each with the moment when it is taken; a line that is longer than the number comes in parts."""


def _stamp(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06}417Z"


def _parts(line: str, most: int) -> list[str]:
    return [line[at : at + most] for at in range(0, len(line), most)] or [""]


def cri(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """kubernetes/design-proposals-archive, node/kubelet-cri-logging.md: stamp, stream, tag, line."""
    for line, at in lines:
        parts = _parts(line, most)
        for number, part in enumerate(parts, 1):
            yield f"{_stamp(at)} stdout {'F' if number == len(parts) else 'P'} {part}"


def docker(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """moby/moby, daemon/logger/jsonfilelog/jsonlog: an object a line; a part of a line has no newline at its end."""
    for line, at in lines:
        for part in _parts(line + "\n", most):
            yield json.dumps({"log": part, "stream": "stdout", "time": _stamp(at)}, separators=(",", ":"))


def compose(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """``docker compose logs``, with colours."""
    yield from (f"\x1b[36mkafka-1  | \x1b[0m{line}" for line, _ in lines)


def swarm(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """docker/cli, cli/command/service/logs.go: ``docker service logs --timestamps``."""
    yield from (f"{_stamp(at)} kafka_kafka.1.x9y8z7@node-1    | {line}" for line, at in lines)


def stern(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """stern/stern, cmd/cmd.go: its output ``default``."""
    yield from (f"\x1b[31mkafka-0\x1b[0m \x1b[91mkafka\x1b[0m {line}" for line, _ in lines)


def kubectl(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """``kubectl logs --prefix --timestamps``."""
    yield from (f"[pod/kafka-0/kafka] {_stamp(at)} {line}" for line, at in lines)


def stamped(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """``kubectl logs --timestamps``, ``docker logs --timestamps``."""
    yield from (f"{_stamp(at)} {line}" for line, at in lines)


def journal(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """``journalctl``: its output ``short``."""
    yield from (f"{at:%b %d %H:%M:%S} kafka-3 kafka-server-start.sh[812]: {line}" for line, at in lines)


def journal_iso(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """``journalctl -o short-iso``."""
    yield from (f"{at:%Y-%m-%dT%H:%M:%S}+0000 kafka-3 kafka-server-start.sh[812]: {line}" for line, at in lines)


def journal_json(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """systemd, docs/JOURNAL_EXPORT_FORMATS.md: ``journalctl -o json``, text with control characters as bytes."""
    for number, (line, at) in enumerate(lines):
        text = line if number % 2 else list(line.encode("utf-8", "surrogateescape"))
        micros = (at - EPOCH) // timedelta(microseconds=1)
        yield json.dumps({"__REALTIME_TIMESTAMP": str(micros), "_HOSTNAME": "kafka-3", "_PID": "812", "MESSAGE": text})


def journal_export(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """systemd, docs/JOURNAL_EXPORT_FORMATS.md: ``journalctl -o export``."""
    for line, at in lines:
        yield from (f"__CURSOR=s={most};i=1", f"__REALTIME_TIMESTAMP={(at - EPOCH) // timedelta(microseconds=1)}")
        yield from ("PRIORITY=6", f"MESSAGE={line}", "_HOSTNAME=kafka-3", "")


def syslog(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """RFC 5424."""
    yield from (
        f'<134>1 {at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06}Z kafka-3 kafka 812 - [a@1 b="c\\]"] {line}'
        for line, at in lines
    )


def syslog_of_old(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """RFC 3164, as rsyslog writes it: control characters are octal."""
    yield from (f"<134>{at:%b %d %H:%M:%S} kafka-3 kafka[812]: {line}".replace("\t", "#011") for line, at in lines)


def fluent_bit(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """fluent/fluent-bit, plugins/out_stdout/stdout.c: with the format json_lines."""
    for line, at in lines:
        yield json.dumps({"date": (at - EPOCH) / timedelta(seconds=1), "log": line, "kubernetes": {"pod_name": "k"}})


def fluent_bit_arrays(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """Fluent Bit, output stdout with the format json: an array of records."""
    yield json.dumps([{"date": (at - EPOCH) / timedelta(seconds=1), "log": line} for line, at in lines])


def fluent_bit_stdout(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """fluent/fluent-bit, plugins/out_stdout/stdout.c and lib/msgpack-c/src/objectc.c: text is printed as it is.

    Docker's files give it a newline at its end.
    """
    for number, (line, at) in enumerate(lines):
        yield f'[{number}] kube.k: [{(at - EPOCH) / timedelta(seconds=1):.9f}, {{"log"=>"{line}'
        yield '", "stream"=>"stdout"}]'


def fluentd(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """fluent/fluentd, lib/fluent/plugin/out_stdout.rb."""
    yield from (f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond:06}417 +0000 k.a: {json.dumps({'log': x})}" for x, at in lines)


def grafana(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """grafana/grafana, public/app/features/inspector/utils/download.ts: newest first, as its table is."""
    for line, at in reversed(lines):
        yield f"{(at - EPOCH) // timedelta(milliseconds=1)}\t{_stamp(at)[:23]}Z\t{line}"


def loki(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """grafana/loki, pkg/logcli/output/jsonl.go: ``logcli query -o jsonl``, newest first as it is by default."""
    for line, at in reversed(lines):
        yield json.dumps({"labels": {"app": "kafka"}, "line": line, "timestamp": _stamp(at)})


def loki_text(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """grafana/loki, pkg/logcli/output/default.go: ``logcli query --forward``; labels are padded to one width."""
    yield from (f'{_stamp(at)} {{app="kafka", pod="kafka-0"}}   {line}' for line, at in lines)


def crlf(lines: list[tuple[str, datetime]], most: int) -> Iterator[str]:
    """A file of Windows tools, with a byte order mark."""
    yield from (("\ufeff" if number == 0 else "") + line + "\r" for number, (line, _) in enumerate(lines))


WRAPPERS: dict[str, tuple[Wrapper, bool]] = {  # with true if it says when it took a line
    "none": (lambda lines, most: (line for line, _ in lines), False),
    **{"cri": (cri, True), "docker": (docker, True), "compose": (compose, False), "kubectl": (kubectl, True)},
    **{"stamped": (stamped, True), "journal": (journal, False), "journal_iso": (journal_iso, True)},
    **{"journal_json": (journal_json, True), "syslog": (syslog, True), "syslog_of_old": (syslog_of_old, False)},
    **{"fluent_bit": (fluent_bit, True), "fluent_bit_arrays": (fluent_bit_arrays, True), "loki": (loki, True)},
    **{"loki_text": (loki_text, True), "crlf": (crlf, False), "journal_export": (journal_export, False)},
    **{"fluent_bit_stdout": (fluent_bit_stdout, True), "fluentd": (fluentd, True), "grafana": (grafana, True)},
    **{"swarm": (swarm, True), "stern": (stern, False)},
}


def dressed(logged: list[Logged], layout: str, wrapper: str, most: int = 1 << 20) -> list[str]:
    """Return the lines of a file with these events."""
    lines = []
    for event in logged:
        printed = LAYOUTS[layout].print(event)
        taken = event.at + timedelta(milliseconds=3)
        lines += [(line, taken + timedelta(microseconds=n)) for n, line in enumerate(printed.split("\n"))]
    return list(WRAPPERS[wrapper][0](lines, most))
