"""Rows that break a gate -> the files and topics that hold them, with line numbers, offsets or positions.

Bronze keeps no line numbers. But a line's ``_bronze_id`` is a hash of its bytes: if the file still exists, it is read
again until the first lines that break each rule are found. The result contains no value of a record.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from expectations.contract import Contract
from expectations.rules import counted
from expectations.text import visible
from expectations.verdict import OF_THE_ROW, SCOPE, Verdict
from pipelines.catalog import CATALOG, stages_of_type
from pipelines.settings import Settings
from pipelines.sources import landing
from pipelines.stage import Land

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Key = tuple[str | None, str]  # scope, or None for the whole batch, and the code of a rule
Lines = tuple[int, int]  # the numbers of the first and the last of consecutive lines

MOST_COORDINATES = 20
MOST_LOCATED = 50  # scopes whose failing rows are located
MOST_FILES = 3
MOST_RANGES = 3  # ranges of lines, offsets or positions named for each file
MOST_LOOKED_FOR = 1_000  # rows to look for in a file
MOST_READ = 256 << 20  # to read from files for one gate
MOST_OF_A_NAME = 300  # characters of a file's name
KAFKA = "kafka:"

_ID = 16  # hexadecimal digits of a _bronze_id that tell lines apart


@dataclass(frozen=True)
class Source:
    """A file or a topic's partition that holds failing rows: how many, their ids and positions, in order."""

    name: str
    rows: int
    ids: tuple[str, ...]
    positions: tuple[int, ...]


@dataclass(frozen=True)
class Found:
    """The sources with most of the rows that break a rule in a batch, and the numbers of all such sources and rows."""

    sources: tuple[Source, ...]
    source_count: int
    rows: int


def located(verdict: Verdict, judged: DataFrame, contract: Contract, settings: Settings) -> Verdict:
    """Return the verdict with the coordinates of failing rows and words for the files that hold them; run one query."""
    found, coordinates = _found(verdict, judged, contract)
    landed = land_of(contract.table)
    located_rows = _lines(found, settings, landed)
    unit = "position" if landed is not None and landed.reader else ""
    return verdict.located(coordinates, {key: _words(rows, key, located_rows, unit) for key, rows in found.items()})


def land_of(table: str) -> Land | None:
    """Return the stage that lands what a split table is made of; None for a table that is not of the catalog."""
    stage = next((stage for stage in CATALOG if stage.table == table), None)
    return next((land for land in stages_of_type(Land) if stage and land.table == stage.inputs[0]), None)


def _words(
    found: Found, key: Key, located_rows: Mapping[tuple[str, Key], _Located], unit: str
) -> Callable[[int], tuple[str, ...]]:
    def words(failing: int) -> tuple[str, ...]:
        first = found.sources[:MOST_FILES]
        said = [_in_words(source, located_rows.get((source.name, key)), unit) for source in first]
        if more := found.source_count - len(first):
            rows = found.rows - sum(source.rows for source in first)
            said.append(f"{counted(more, 'more file')} with {counted(rows, 'row')}")
        if failing > found.rows:
            said.append(f"{counted(failing - found.rows, 'row')} of earlier batches")
        return tuple(said)

    return words


def _in_words(source: Source, of_file: _Located | None, unit: str) -> str:
    """Return words for the failing rows of one file or topic; names are escaped for terminals."""
    of_topic = _is_of_topic(source.name)
    positions = tuple((position, position) for position in source.positions)
    ranges = positions if of_topic or unit else of_file.lines if of_file else ()
    said = f"{named(source.name)} {counted(source.rows, 'row')}"
    if ranges:
        said += f", {numbered('offset' if of_topic else unit or 'line', ranges[:MOST_RANGES], source.rows)}"
    if of_file and of_file.damage:
        said += f", {of_file.damage[0].lower()}{of_file.damage[1:].rstrip('.')}"
    return said


def named(source: str) -> str:
    """Return the name of a file, or of a topic's partition, for a terminal."""
    if _is_of_topic(source):
        topic, _, partition = source.removeprefix(KAFKA).rsplit("/", 2)
        source = f"{topic}-{partition}"
    if len(source) > MOST_OF_A_NAME:
        source = f"{source[: MOST_OF_A_NAME // 2]}…{source[-MOST_OF_A_NAME // 2 :]}"
    return visible(source)


def _is_of_topic(source: str) -> bool:
    return source.startswith(KAFKA) and source.count("/") >= 2


def numbered(unit: str, ranges: Sequence[Lines], rows: int) -> str:
    """Say which numbers, such as those of lines, some of the rows have: "line 3", "lines 1-40, 52 ..."."""
    numbers = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    known = sum(last - first + 1 for first, last in ranges)
    return f"{unit}{'' if rows == 1 and known == 1 else 's'} {numbers}{' ...' if rows > known else ''}"


def _found(
    verdict: Verdict, judged: DataFrame, contract: Contract
) -> tuple[dict[Key, Found], dict[Key, tuple[str, ...]]]:
    """Query the sources with most of the rows that break each failing rule, in the batch and in its failing scopes."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    of_a_source = Window.partitionBy("code", "of", "_source")
    of_a_rule = Window.partitionBy("code", "of")
    in_order = of_a_source.orderBy(F.asc_nulls_last("position"), "coordinates", "id")
    nth, rows_of_source = F.row_number().over(in_order).alias("nth"), F.count("*").over(of_a_source).alias("rows")
    sources = (
        _failing_rows(verdict, judged, contract)
        .select("*", nth, rows_of_source)
        .where(F.col("nth") <= MOST_LOOKED_FOR)
        .groupBy("code", "of", "_source")
        .agg(
            F.max("rows").alias("rows"),
            F.sort_array(F.collect_list(F.struct("nth", "id", "position"))).alias("first"),
            F.sort_array(F.collect_list(F.when(F.col("nth") <= MOST_COORDINATES, F.col("coordinates")))).alias("at"),
        )
        .select(
            "*",
            F.row_number().over(of_a_rule.orderBy(F.desc("rows"), "_source")).alias("rank"),
            F.count("*").over(of_a_rule).alias("sources"),
            F.sum("rows").over(of_a_rule).alias("all_rows"),
        )
        .where(F.col("rank") <= MOST_COORDINATES)
        .withColumn("first", F.when(F.col("rank") <= MOST_FILES, F.col("first")).otherwise(F.array()))
    )
    found: dict[Key, Found] = {}
    coordinates: dict[Key, tuple[str, ...]] = {}
    for row in sources.orderBy("code", "of", "rank").collect():
        key = (row["of"], row["code"])
        source = Source(
            row["_source"],
            row["rows"],
            tuple(row_["id"] for row_ in row["first"]),
            tuple(row_["position"] for row_ in row["first"][:MOST_RANGES] if row_["position"] is not None),
        )
        before = found[key].sources if key in found else ()
        found[key] = Found((*before, source), row["sources"], row["all_rows"])
        coordinates[key] = tuple(sorted((*coordinates.get(key, ()), *row["at"]))[:MOST_COORDINATES])
    return found, coordinates


def _failing_rows(verdict: Verdict, judged: DataFrame, contract: Contract) -> DataFrame:
    """Select a row for each failing rule that a row breaks, and one more if its scope fails."""
    from pyspark.sql import functions as F

    failed = sorted({outcome.code for outcome in verdict.failed})
    scopes = list(dict.fromkeys(outcome.scope for outcome in verdict.failed if outcome.scope is not None))
    *_, last = contract.grain
    parts = [
        F.concat(F.lit(f"{name}="), F.substring(F.col(name).cast("string"), 1, 250))
        for name in contract.grain
        if name != "cluster"
    ]
    line = F.concat(F.col("_source"), F.lit(" line "), F.substring("_bronze_id", 1, _ID))
    position = F.col(contract.position) if contract.position else F.lit(None)
    mask = F.col("_broken_rules")
    refused = F.when(contract.refused(mask), F.array(F.lit(OF_THE_ROW))).otherwise(F.array())
    return (
        judged.where(mask != 0)
        .select(
            "_source",
            F.substring("_bronze_id", 1, _ID).alias("id"),
            position.cast("bigint").alias("position"),
            F.when(F.col(SCOPE).isin(scopes[:MOST_LOCATED]), F.col(SCOPE)).alias("of"),
            F.explode(F.concat(contract.violations(mask), refused)).alias("code"),
            F.when(F.col(last).isNull(), line).otherwise(F.concat_ws(" ", *parts)).alias("coordinates"),
        )
        .where(F.col("code").isin(failed))
        .withColumn("of", F.explode(F.array_distinct(F.array("of", F.lit(None)))))
    )


@dataclass(frozen=True)
class _Located:
    """What a file tells about failing rows: the numbers of the first lines, and the file's damage, if any."""

    lines: tuple[Lines, ...]
    damage: str | None = None


def _lines(found: Mapping[Key, Found], settings: Settings, landed: Land | None) -> dict[tuple[str, Key], _Located]:
    """Look for the rows in the files that they were read from, if these exist; read up to ``MOST_READ`` in all."""
    if landed is None or landed.reader:
        return {}
    wanted: dict[str, dict[Key, frozenset[str]]] = {}
    for key, rows in found.items():
        for source in rows.sources[:MOST_FILES]:
            if not source.name.startswith(KAFKA):
                wanted.setdefault(source.name, {})[key] = frozenset(source.ids)
    root = os.path.realpath(settings.landing_of(landed.directory))
    located_rows: dict[tuple[str, Key], _Located] = {}
    left = MOST_READ
    for name, sought in wanted.items():
        damages = {hashlib.sha256(f"{name}\n{cause}".encode()).hexdigest()[:_ID]: cause for cause in landing.DAMAGES}
        numbers, size = first_lines(landing.content(root, name), list(sought.values()), left)
        left -= size
        for (key, ids), lines in zip(sought.items(), numbers, strict=True):
            damage = next((damages[id_] for id_ in sorted(ids) if id_ in damages), None)
            located_rows[name, key] = _Located(tuple(lines), damage)
    return located_rows


def first_lines(
    blocks: Iterable[bytes], wanted: Sequence[frozenset[str]], most_bytes: int
) -> tuple[list[list[Lines]], int]:
    """Return, for each set of ids, the first ranges of lines with these ids, and how many bytes were read."""
    found: list[list[Lines]] = [[] for _ in wanted]
    unseen = [set(ids) for ids in wanted]
    size = 0
    every = frozenset().union(*wanted)

    def measured() -> Iterator[bytes]:
        nonlocal size
        for block in blocks:
            yield block
            size += len(block)
            if size >= most_bytes:
                return

    if most_bytes <= 0 or not every:
        return found, 0
    enough = False
    with suppress(OSError):
        for number, digest in _digests(measured()):
            if digest not in every:  # a line that ends all ranges
                if enough:
                    break
                continue
            for ranges, ids, left in zip(found, wanted, unseen, strict=True):
                if digest in ids:
                    left.discard(digest)
                    if ranges and ranges[-1][1] == number - 1:
                        ranges[-1] = (ranges[-1][0], number)
                    elif len(ranges) < MOST_RANGES:
                        ranges.append((number, number))
            enough = all(not left or len(ranges) == MOST_RANGES for ranges, left in zip(found, unseen, strict=True))
    return found, size


def _digests(blocks: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Yield each line's number, from 1, and the beginning of its SHA-256; a line can be longer than a block."""
    number, begun = 1, hashlib.sha256()
    is_begun = False
    for block in blocks:
        *ended, rest = block.split(b"\n")
        for line in ended:
            if is_begun:
                begun.update(line)
                digest, begun, is_begun = begun, hashlib.sha256(), False
            else:
                digest = hashlib.sha256(line)
            yield number, digest.hexdigest()[:_ID]
            number += 1
        if rest:
            begun.update(rest)
            is_begun = True
    if is_begun:
        yield number, begun.hexdigest()[:_ID]
