"""silver.dlq_episodes -> gold.dlq_incidents: each episode with its verdict, its evidence and its severity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from expectations.contract import contract_of
from expectations.owners import OWNER, owner_of
from pipelines.incidents.evidence import Topic
from pipelines.incidents.severity import severity
from pipelines.incidents.verdict import judge

Row = Mapping[str, Any]


def derive(rows: Sequence[Row], existing_rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Return the incidents of one source topic; ``rows`` are all of its episodes, in any order."""
    stored = {column.name for column in contract_of("gold.dlq_incidents").stored}
    topics = {
        cluster: Topic.of(row for row in rows if row["cluster"] == cluster and row["record_count"])
        for cluster in {row["cluster"] for row in rows}
    }
    for row in rows:
        kept = {name: value for name, value in row.items() if name in stored} | {OWNER: owner_of(row)}
        if not row["record_count"]:
            yield kept
            continue
        judged = judge(row, topics[row["cluster"]])
        level, reasons = severity(row, judged)
        yield {
            **kept,
            **vars(judged.evidence),
            "verdict": judged.verdict,
            "sentence": judged.sentence,
            "would_change": judged.would_change,
            "severity": level,
            "severity_reasons": reasons,
            "partition_count_hit": len(row["partitions"] or ()),
        }
