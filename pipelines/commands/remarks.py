"""A statement, its values and the number of its rows -> why the answer is empty, or tells nothing of now."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise, product

from expectations.rules import counted
from expectations.text import visible
from pipelines import moments
from pipelines.catalog import CATALOG, stages_of_type
from pipelines.commands.arguments import Parameter
from pipelines.commands.statements import statement_tables, tokens_of
from pipelines.run import newest
from pipelines.stage import Land, Stage
from pipelines.steps.held import own, rows_held
from pipelines.text import hint
from pipelines.warehouse import jvmless
from pipelines.warehouse.alert_log import ALERTS, NO_ROUTE
from pipelines.warehouse.tables import Warehouse

RECORDS = "silver.dlq_records"
CLOCKS = ("now", "current_timestamp", "current_date", "curdate", "localtimestamp")  # Spark's functions
WINDOW = timedelta(hours=1)  # of a question about now that names no interval
UNITS = {
    "second": 1,
    "minute": 60,
    "hour": 3_600,
    "day": 86_400,
    "week": 604_800,
    "month": 2_592_000,
    "year": 31_536_000,
}
_FEEDS = re.compile(r"^--[ ]Feeds:[ ]([a-z, -]+)\.?[ ]*$", re.MULTILINE)
_INTERVAL = re.compile(rf"\bINTERVAL\s+'?([0-9]{{1,9}})'?\s+({'|'.join(UNITS)})s?\b", re.IGNORECASE)


def remarks_after(
    warehouse: Warehouse, text: str, values: Mapping[str, Parameter], form: str, written: int
) -> list[str]:
    """Write the number of rows of a table to standard error; return the remarks on an answer."""
    if form == "table":
        print(counted(written, "row"), file=sys.stderr)
    try:
        return remarks(warehouse, text, values, written)
    except Exception:  # the answer is written already, and remarks are optional
        return []


def remarks(warehouse: Warehouse, text: str, values: Mapping[str, Parameter], written: int) -> list[str]:
    """Return a sentence for each feed that explains why an answer is empty, or why it tells nothing of now.

    A feed that is not set up explains why there are no rows. If a statement is about now, a feed whose newest accepted
    record is older than the statement's shortest interval explains missing rows. Held rows explain them too. That no
    route is set explains why there are no alerts.
    """
    tables = sorted(statement_tables(text))
    stages = [stage for stage in map(newest.source_of, tables) if stage]
    feeds = list(dict.fromkeys(stage.directory for stage in stages))
    timed = set(feeds)
    if head := _FEEDS.search(text):
        stated = [name.strip() for name in head[1].split(",")]
        known = {stage.directory for stage in stages_of_type(Land)}
        feeds = [name for name in stated if name in known]
        timed = set(feeds[:1])
    present = moments.now()
    asked = values.get("now") if _names_now(text) else present if _reads_a_clock(text) else None
    now = min(asked, present) if isinstance(asked, datetime) else present
    window = _shortest_interval(text)
    sentences = [] if written else _unknown_topic(warehouse, values.get("topic"))
    is_untold = not written and ALERTS.table in tables and not warehouse.settings.alerts.route
    sentences += [NO_ROUTE] if is_untold else []
    read = [stage for stage in stages_of_type(Land) if stage.directory in feeds]
    for stage, of_cluster in product(read, warehouse.of_clusters()):
        age = newest.of_feed(of_cluster, stage, now)
        feed = age.feed if warehouse.settings.sole_cluster else f"{age.feed} in cluster {of_cluster.cluster}"
        if not age.is_readable:
            continue
        if not age.used:
            if not written:
                sentences.append(f"The feed {feed} is {age.in_words}.")
            continue
        stale = asked is not None and stage.directory in timed
        stale = stale and (age.accepted_at is None or age.accepted_at < now - window)
        as_of = "" if present - now < timedelta(minutes=1) else f", as of {newest.moment(now)}"
        if stale and age.accepted_at and age.at and age.at >= now - window:
            since = f"{newest.lasting(now - age.accepted_at)} old ({newest.moment(age.accepted_at)}){as_of}"
            sentences.append(f"Of the feed {feed} the newest accepted record is {since}; newer ones were not accepted.")
        elif stale:
            sentences.append(f"Of the feed {feed} {age.in_words}{as_of}.")
        if stale or not written:
            sentences += _held_of(of_cluster, stage)
    return sentences


def _unknown_topic(warehouse: Warehouse, topic: Parameter | None) -> list[str]:
    """Return a sentence if no dead letter is of a source topic; none also if the parameter names no topic."""
    if not isinstance(topic, str) or not warehouse.exists(RECORDS):
        return []
    text = "SELECT DISTINCT original_topic AS topic FROM rows WHERE original_topic IS NOT NULL"
    topics = [
        row["topic"]
        for own in warehouse.of_clusters()
        for row in jvmless.query(own, RECORDS, text, {"cluster": own.cluster})
    ]
    return [] if topic in topics else [f"No dead letter is of topic '{visible(topic)}'.{hint(topic, topics)}"]


def _held_of(warehouse: Warehouse, source: Stage) -> list[str]:
    """Return a sentence for each table that holds rows of a feed: answers do not see held rows."""
    sentences = []
    for stage in CATALOG:
        known = own(warehouse, stage.table) if source.table in stage.inputs else None
        if known and (rows := sum(scope.rows for scope in known.held.values())):
            sentences.append(f"{rows_held(rows, stage.table)}, which answers do not see: see `afterlog doctor`.")
    return sentences


def _names_now(text: str) -> bool:
    tokens = list(tokens_of(text))
    return any(pair == (":", "now") for pair in pairwise(tokens))


def _reads_a_clock(text: str) -> bool:
    tokens = [token.lower() for token in tokens_of(text)]
    called = {name for name, bracket in pairwise(tokens) if bracket == "("}
    return bool(called.intersection(CLOCKS) or {"current_timestamp", "current_date"}.intersection(tokens))


def _shortest_interval(text: str) -> timedelta:
    """Return the shortest interval that a statement names: a feed without newer records explains missing rows."""
    seconds = [int(number) * UNITS[unit.lower()] for number, unit in _INTERVAL.findall(text)]
    return timedelta(seconds=min(min(seconds), 10**9)) if seconds else WINDOW
