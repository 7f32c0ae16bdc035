"""Lines of the brokers' request log -> the API that each concerns, its timestamp, the JSON of the exchange.

``kafka.request.logger`` writes one line per request at DEBUG: a timestamp, ``Completed request:`` and a JSON object
with the request's header, the request, the response, the connection and the times. At TRACE it writes other forms too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.columns.once import computed_once
from pipelines.sources.logs import events, files, layouts, unknown
from pipelines.sources.logs.files import Earlier, Row, Text
from pipelines.sources.logs.layouts import Pattern
from pipelines.sources.logs.wrappers import Line

if TYPE_CHECKING:
    from pipelines.settings import Settings

PUSH = "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE"
HEARTBEAT = "STREAMS_GROUP_HEARTBEAT"
DESCRIBE = "STREAMS_GROUP_DESCRIBE"
DELETION = "DELETE_GROUPS"
APIS = (PUSH, HEARTBEAT, DESCRIBE, DELETION)

MOST_NAME = 80  # characters of an API's name
OTHER_LINES = "lines of no API"
CUT_LINES = "lines that the end of a file cuts off"

# Quotes are escaped where a wrapper or a layout holds the request in a string of JSON.
_NAMED = re.compile(r'requestApiKeyName\\*":\s?\\*"([A-Z_]+)')
_MENTIONED = re.compile(rf"(?<![A-Z_])({'|'.join(APIS)})(?![A-Z_])")
# Other events of the log can have further lines, such as a stack trace.
_CONTINUES = re.compile(r"\s|Caused by|\.\.\. |at [^\s(]+\(|[\w.$]+(?:Exception|Error)\b")
_EXCHANGE = r"(?s)Completed request:(\{.*\})"
_FOUND = re.compile(_EXCHANGE)


def rows(lines: Text, timezone: str, pattern: Pattern | None, earlier: Earlier | None = None) -> Iterator[Row]:
    """Yield a row for each line, then one for the file if most of its lines are in no known layout.

    A line of the JSON form concerns the API that its header names, any other line the first API that it mentions. A
    line that the end of the file cuts off is skipped: it is read when the file grows, or with the file that ends it.
    """
    known, every = events.sampled(lines, pattern)
    read, census = _Reading(timezone, known.pattern), unknown.Census()
    foreign: Counter[str] = Counter()

    def is_foreign(text: str) -> bool:
        match = _NAMED.search(text)
        if match is None or match[1] in APIS:
            return False
        foreign[match[1][:MOST_NAME]] += 1
        return True

    last: Row | None = None
    for line in events.joined(every, known, is_foreign):
        if is_foreign(line.text):
            continue
        if last is not None:
            yield last
        last = read.row(line, census, known.is_dated)
    if last is not None:
        yield last._replace(other=CUT_LINES, kind=None) if lines.is_cut and last.error in _CUT else last
    census.count(lines=foreign.total())
    for name, times in foreign.items():
        yield from repeat(Row(None, other=name), times)
    if (finding := census.finding("streams_requests", pattern)) is not None:
        yield Row(None, finding)


_CUT_OFF = "the line is not a completed request with its JSON: cut off, or logged at TRACE"
_NOT_JSON = "the JSON of the request is cut off or not valid"
_CUT = (_CUT_OFF, _NOT_JSON)


class _Reading:
    """Reads lines one after the other; equal wanted lines are numbered."""

    def __init__(self, timezone: str, pattern: Pattern | None) -> None:
        self.zone = ZoneInfo(timezone)
        self.pattern = pattern
        self.equal: Counter[int] = Counter()
        self.begun: set[str] = set()

    def row(self, line: Line, census: unknown.Census, is_dated: bool) -> Row:
        """Return the row of a line."""
        text = line.text
        match = _NAMED.search(text)
        if match is not None and match[1] not in APIS:
            return Row(None, other=match[1][:MOST_NAME])
        begins = layouts.begins(text, self.pattern, is_dated)
        if begins:
            self.begun.add(line.stream)
        is_known = begins or not text or (line.stream in self.begun and _CONTINUES.match(text) is not None)
        census.count(None if is_known else text)
        api = match or _MENTIONED.search(text)
        if api is None:
            return Row(None, other=OTHER_LINES if is_known else unknown.LINES)
        if line.is_part:
            return Row(None, other=CUT_LINES)
        said = layouts.parts(text, self.pattern) if begins else None
        at = None if said is None else layouts.moment(said, line.stamp, self.zone)
        message = said.message if said is not None and text[:1] == "{" else text
        self.equal[hash(line.raw)] += 1
        return Row(
            events.encoded(line.raw),
            None,
            self.equal[hash(line.raw)],
            api[1],
            None,
            at,
            None if message in line.raw else events.encoded(message).decode("utf-8", "replace"),
            self._error(line, message, said, at),
        )

    def _error(self, line: Line, message: str, said: layouts.Parts | None, at: int | None) -> str | None:
        if not events.is_utf8(message) or not events.is_utf8(line.raw):
            return "the line is not UTF-8"
        if at is None:
            return unknown.why_no_time(line.text, said, self.pattern)
        if (request := _FOUND.search(message)) is None:
            return _CUT_OFF
        try:
            json.loads(request[1], parse_constant=_refused)
        except (ValueError, RecursionError):
            return _NOT_JSON
        return None


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def read_records(lines: DataFrame, settings: Settings) -> DataFrame:
    """Return the rows of a topic's records, each of which is a line, or several in one wrapper."""
    return files.read_records(lines, _rows_of_a_record, settings)


def _rows_of_a_record(lines: Text, timezone: str, pattern: Pattern | None, earlier: Earlier | None) -> Iterator[Row]:
    known, every = events.sampled(lines, pattern)
    read = _Reading(timezone, known.pattern)
    for line in events.joined(every, known):
        yield read.row(line, unknown.Census(), False)


def exchange(text: Column) -> Column:
    """Return the JSON object of what a row says, null if it has none."""
    return F.nullif(F.regexp_extract(text, _EXCHANGE, 1), F.lit(""))


def exchanges(bronze: DataFrame, settings: Settings, apis: tuple[str, ...], request: str, response: str) -> DataFrame:
    """Return bronze rows with ``_skipped``, ``request`` and ``response`` (of the types given), and the shared columns.

    Rows of other APIs are skipped; rows about damaged files count as pushes. A value that is not of its type is null.
    """
    header = "requestHeader: struct<requestApiVersion: int, correlationId: int, clientId: string>"
    schema = (
        f"{header}, request: struct<{request}>, response: struct<{response}>, connection: string, principal: string, "
        "totalTimeMs: double"
    )
    wanted = F.col("api").isin(*apis)
    if PUSH in apis:
        wanted = wanted | F.col("api").isNull()
    json = F.when(wanted & F.col("error").isNull(), exchange(files.said(bronze)))
    read = bronze.withColumn("_json", computed_once(json)).withColumn(
        "_read", computed_once(F.from_json("_json", f"struct<{schema}>"))
    )
    return read.select(
        "_source",
        "_bronze_id",
        "cluster",
        "logged_at",
        "line",
        "error",
        (~F.coalesce(wanted, F.lit(False))).alias("_skipped"),
        F.col("_read.connection").alias("connection"),
        F.col("_read.requestHeader.correlationId").alias("correlation_id"),
        F.col("_read.requestHeader.clientId").alias("client_id"),
        F.col("_read.principal").alias("principal"),
        F.col("_read.requestHeader.requestApiVersion").alias("api_version"),
        F.col("_read.totalTimeMs").alias("total_ms"),
        F.col("_read.request").alias("request"),
        F.col("_read.response").alias("response"),
        F.xxhash64("_json").alias("_content_hash"),
    )
