"""quarantine.* -> what is refused, in words: rules, the files and topics with most rows, examples as file:line."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from expectations.contract import contract_of
from expectations.text import visible
from pipelines.catalog import CATALOG, stages_of_type
from pipelines.site.quality import Pipeline, Violation
from pipelines.sources import landing
from pipelines.stage import Land, Stage
from pipelines.steps.failing_rows import KAFKA, first_lines
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

MOST_SOURCES = 5
MOST_EXAMPLES = 5
MOST_READ = 32 << 20  # to read from files for all examples
DIGITS = 16  # of a line's id that tell lines apart


@dataclass(frozen=True)
class Example:
    """A row in quarantine: where it is, as file:line or topic-partition@offset, and which rules it breaks."""

    where: str
    codes: tuple[str, ...]


@dataclass(frozen=True)
class Refused:
    """What a table's quarantine holds."""

    table: str
    rows: int
    violations: tuple[Violation, ...]
    sources: tuple[tuple[str, int], ...]
    source_count: int
    examples: tuple[Example, ...]

    @property
    def next_command(self) -> str:
        """The command that takes rows back once their cause is fixed."""
        return f"afterlog readmit {self.table}"


@dataclass(frozen=True)
class Quarantined:
    """What the quarantines of all tables hold, the fullest first."""

    rows: int
    tables: tuple[Refused, ...]


def quarantined(warehouse: Warehouse, pipeline: Pipeline) -> Quarantined:
    """Return what is in quarantine; files are read for the numbers of a few lines only."""
    stages = {stage.table: stage for stage in CATALOG}
    left = MOST_READ
    refusals = []
    for table in pipeline.tables:
        kept = table.quarantine
        stage = stages.get(table.name)
        if kept is None or not kept.rows or stage is None or stage.quarantine is None:
            continue
        groups = _groups(warehouse, stage)
        counts: Counter[str] = Counter()
        for row in groups:
            counts[_name(row["_source"])] += row["row_count"]
        examples, size = _examples(warehouse, stage, groups, left)
        left -= size
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        refusals.append(
            Refused(table.name, kept.rows, kept.violations, tuple(ranked[:MOST_SOURCES]), len(ranked), examples)
        )
    refusals.sort(key=lambda refusal: (-refusal.rows, refusal.table))
    return Quarantined(sum(refusal.rows for refusal in refusals), tuple(refusals))


def _groups(warehouse: Warehouse, stage: Stage) -> list[dict[str, Any]]:
    """Return how many rows of each source break the same rules, and one of these rows."""
    position = contract_of(stage.table).position
    first = f"min({position})" if position else "CAST(NULL AS BIGINT)"
    text = f"""
        SELECT _source, violations, count(*) AS row_count, min(_bronze_id) AS bronze_id, {first} AS first_position
        FROM rows
        GROUP BY _source, violations
        ORDER BY row_count DESC, _source, bronze_id
    """
    return jvmless.query(warehouse, stage.quarantine or "", text, {"cluster": warehouse.cluster})


def _examples(
    warehouse: Warehouse, stage: Stage, groups: Sequence[dict[str, Any]], most_bytes: int
) -> tuple[tuple[Example, ...], int]:
    """Return a few rows that break different rules, and how many bytes of files were read to find them."""
    chosen, known = [], set()
    for row in groups:
        codes = tuple(row["violations"])
        if codes not in known:
            known.add(codes)
            chosen.append(row)
    chosen = chosen[:MOST_EXAMPLES]
    land = next((candidate for candidate in stages_of_type(Land) if candidate.table == stage.inputs[0]), None)
    root = os.path.realpath(warehouse.settings.landing_of(land.directory)) if land else None
    size = 0
    examples = []
    for row in chosen:
        coordinate = _name(row["_source"])
        if row["_source"].startswith(KAFKA):
            coordinate += f"@{row['first_position']}" if row["first_position"] is not None else ""
        elif root is not None and land is not None and not land.reader:
            wanted = [frozenset({row["bronze_id"][:DIGITS]})]
            (lines,), taken = first_lines(landing.content(root, row["_source"]), wanted, most_bytes - size)
            size += taken
            coordinate += f":{lines[0][0]}" if lines else ""
        elif row["first_position"] is not None:
            coordinate += f":{row['first_position']}"
        examples.append(Example(coordinate, tuple(row["violations"])))
    return tuple(examples), size


def _name(source: str) -> str:
    """Return a file's name, or a topic's partition, for people."""
    if source.startswith(KAFKA) and source.count("/") >= 2:
        topic, _, partition = source.removeprefix(KAFKA).rsplit("/", 2)
        return f"{visible(topic)}-{partition}"
    return visible(source)
