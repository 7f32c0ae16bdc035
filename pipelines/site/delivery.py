"""gold.reconciliation, gold.delivery_guarantees, gold.message_ledger -> Delivery."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from expectations.gold.message_ledger import OUTCOMES
from pipelines.commands.findings import LOGS, logged_topics
from pipelines.site.content import Delivered, Delivery, Guarantee, Lost
from pipelines.site.tables import Tables
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

RECONCILIATION, GUARANTEES, LEDGER = "gold.reconciliation", "gold.delivery_guarantees", "gold.message_ledger"
MOST_LOST = 50


_SUMS = {
    "acknowledged": "acknowledged_count",
    "failed": "failed_count",
    "lost": "lost_count",
    "absent": "absent_count",
    "aborted": "aborted_count",
    "open": "open_count",
    "dead_lettered": "dead_lettered_count",
    "failed_dlq_writes": "dlq_write_failure_count",
    "unexplained_offsets": "dlq_gap_unexplained_count",
}
_OF_LOGS = ("lost", "absent", "aborted", "open")


def delivery_of(warehouse: Warehouse, tables: Tables) -> Delivery:
    """Return what became of messages, by topic and in all; what only logs tell is None where none landed."""
    by_topic: dict[str | None, Counter[str]] = defaultdict(Counter)
    everything: Counter[str] = Counter()
    for row in tables[RECONCILIATION]:
        for name, column in _SUMS.items():
            by_topic[row["topic"]][name] += row[column] or 0
            everything[name] += row[column] or 0
    no_topics: set[str] = set()
    logged = tables.guarded(LOGS, lambda: logged_topics(warehouse), no_topics)

    def known(count: int, name: str, is_logged: bool) -> int | None:
        return count if is_logged or count or name not in _OF_LOGS else None

    def sums(counts: Mapping[str, int], is_logged: bool) -> dict[str, Any]:
        return {name: known(counts[name], name, is_logged) for name in _SUMS}

    def shown(counts: Mapping[str, int], is_logged: bool) -> dict[str, int | None]:
        return {name: known(counts[name], name.lower(), is_logged) for name in names}

    topics = [Delivered(topic, **sums(counts, topic in logged)) for topic, counts in by_topic.items()]
    troubles = attrgetter("lost", "failed_dlq_writes", "aborted", "unexplained_offsets", "absent")
    topics.sort(key=lambda row: (*(-(count or 0) for count in troubles(row)), -row.dead_lettered, row.topic or ""))
    total = Delivered(None, **sums(everything, bool(logged))) if by_topic else None
    rows = tables[GUARANTEES]
    broken = [
        Guarantee(row["verdict"], row["client_id"] or "", row["topic"] or "", row["sentence"])
        for row in rows
        if row["verdict"] != "OK"
    ]
    order = ("WOULD_FAIL", "SILENTLY_OFF", "DUPLICATES_POSSIBLE", "UNKNOWN")
    broken.sort(
        key=lambda guarantee: (
            order.index(guarantee.verdict) if guarantee.verdict in order else len(order),
            guarantee.client,
            guarantee.topic,
        )
    )
    no_outcomes: dict[str, Counter[str]] = {}
    no_losses: tuple[Lost, ...] = ()
    outcomes = tables.guarded(LEDGER, lambda: _outcomes(warehouse), no_outcomes)
    names = tuple(name for name in OUTCOMES if any(counts[name] for counts in outcomes.values()))
    return Delivery(
        total,
        tuple(topics),
        tables.guarded(LEDGER, lambda: _lost(warehouse, everything["lost"]), no_losses),
        tuple(broken),
        len(rows) - len(broken),
        tuple((topic, shown(counts, topic in logged)) for topic, counts in sorted(outcomes.items())),
        names,
    )


def _outcomes(warehouse: Warehouse) -> dict[str, Counter[str]]:
    """Count the messages of each topic by outcome."""
    text = "SELECT topic, outcome, count(*) AS messages FROM rows GROUP BY topic, outcome"
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in jvmless.query(warehouse, LEDGER, text, {"cluster": warehouse.cluster}):
        counts[row["topic"]][row["outcome"]] += row["messages"]
    return counts


def _lost(warehouse: Warehouse, messages: int) -> tuple[Lost, ...]:
    if not messages:
        return ()
    text = f"""
        SELECT topic, rows.partition, count(*) AS messages, min(rows.offset) AS first_offset,
          max(rows.offset) AS last_offset
        FROM rows
        WHERE outcome = 'LOST'
        GROUP BY topic, rows.partition
        ORDER BY messages DESC, topic, rows.partition
        LIMIT {MOST_LOST}
    """
    return tuple(
        Lost(**{field.name: row[field.name] for field in fields(Lost)})
        for row in jvmless.query(warehouse, LEDGER, text, {"cluster": warehouse.cluster})
    )
