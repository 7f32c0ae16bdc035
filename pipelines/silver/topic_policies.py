"""silver.log_ranges, settings, a cluster -> silver.topic_policies: whether compaction may remove a topic's records."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expectations.silver.topic_policies import CONTRACT
from pipelines import moments
from pipelines.catalog import stages_of_type
from pipelines.columns import globs
from pipelines.errors import AfterlogError
from pipelines.kafka.cluster import connected
from pipelines.settings import CleanupPolicy, Settings
from pipelines.sources.log_dirs import TOPIC_PROPERTIES
from pipelines.stage import Land
from pipelines.warehouse import jvmless, progress
from pipelines.warehouse.groups import MOST_GROUPS, Groups
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PATIENCE_SECONDS = 60.0  # how long this process waits to ask a cluster that did not answer again

LOG_RANGES = "silver.log_ranges"
LOG = "log"  # the source of a policy that the landed log itself shows
MOST_OF_PROPERTIES = 1 << 16  # bytes
# A line of properties, or one of what kafka-configs --describe prints.
_POLICY = re.compile(
    rb"^[ \t]*cleanup\.policy[ \t]*[=:][ \t]*([a-z, \t]*?)(?: sensitive=\w+ synonyms=\{.*)?\r?$", re.MULTILINE
)
_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(?:0|[1-9][0-9]{0,9})")

Row = dict[str, Any]
_silent_until: dict[str, float] = {}

log = logging.getLogger("afterlog")


def is_stale(warehouse: Warehouse) -> bool:
    """Tell, without a session, whether the table differs from what settings and cluster say about its topics."""
    if not warehouse.last_version(CONTRACT.table):  # created, never written
        return False
    return any(
        _changed(own, jvmless.rows(own, CONTRACT.table, {"cluster": own.cluster})) for own in warehouse.of_clusters()
    )


def refresh(warehouse: Warehouse, news: DataFrame | None) -> int:
    """Update the table, with the topics of changed rows of silver.log_ranges; return how many rows changed.

    The landed log of a topic can itself show that it was compacted. Nothing else changes rows of clusters other than
    those in the settings. If a cluster cannot be asked, or does not report a topic, its last answer stays.
    """
    rows = jvmless.rows_by_spark(warehouse, CONTRACT.table, {}) if _was_written(warehouse) else []
    known = {(row["cluster"], row["topic"]): row for row in rows}
    shown: dict[tuple[str, str], bool] = {}
    if news is not None:
        is_absent = "_change_type <> 'delete' AND NOT is_present AS is_absent"
        touched = [tuple(row) for row in news.selectExpr("cluster", "topic", is_absent).distinct().collect()]
        for *key, absent in touched:
            if absent:
                policy = known.setdefault(tuple(key), dict.fromkeys((column.name for column in CONTRACT.columns), None))
                policy |= dict(zip(("cluster", "topic"), key, strict=True))
        shown = _shown(warehouse, {(cluster, topic) for cluster, topic, _ in touched} & known.keys())
    changed: list[Row] = []
    for own in warehouse.of_clusters():
        of_own = {topic: is_shown for (cluster, topic), is_shown in shown.items() if cluster == own.cluster}
        changed += _changed(own, [row for row in known.values() if row["cluster"] == own.cluster], of_own)
    for topic_key, is_shown in shown.items():
        now = known[topic_key] | _in_effect(known[topic_key], is_shown)
        if topic_key[0] not in warehouse.settings.names and now != known[topic_key]:
            changed.append(now)
    before = {(row["cluster"], row["topic"]): row for row in rows}
    written = {key: row for key, row in known.items() if key not in before}
    written |= {(row["cluster"], row["topic"]): row for row in changed}
    if not written:
        return 0
    topics = sorted({topic for _, topic in written})
    few = len(topics) <= MOST_GROUPS
    affected = [row for key, row in known.items() if not few or key[1] in set(topics)]
    objects = [
        {name: value if name != "observed_at" else value and value.isoformat() for name, value in row.items()}
        for row in (written.get((row["cluster"], row["topic"]), row) for row in affected)
    ]
    frame = warehouse.rows_of_objects(CONTRACT, objects)
    warehouse.replace_groups(CONTRACT.table, frame, Groups("topic", tuple(topics)) if few else None, count=len(objects))
    return len(written)


def _was_written(warehouse: Warehouse) -> bool:
    return warehouse.state(CONTRACT.table)[1] > 0


def _shown(warehouse: Warehouse, keys: set[tuple[str, str]]) -> dict[tuple[str, str], bool]:
    """Tell of each cluster and topic whether its landed log shows that it was compacted."""
    if not keys:
        return {}
    topics = sorted({topic for _, topic in keys})
    ranges = warehouse.read(LOG_RANGES).where("is_compacted")
    ranges = ranges.where(ranges["topic"].isin(topics)) if len(topics) <= MOST_GROUPS else ranges
    compacted = {tuple(row) for row in ranges.select("cluster", "topic").distinct().collect()}
    return {key: key in compacted for key in keys}


def _changed(warehouse: Warehouse, rows: Iterable[Row], shown: Mapping[str, bool] = {}) -> list[Row]:
    """Return the rows whose values have changed by now, with the new values; all rows are of the settings' cluster.

    ``shown`` tells of topics whether their logs show compaction; for others that stays as it was.
    """
    by_topic = {row["topic"]: row for row in rows}
    reported = _reported(warehouse, list(by_topic))
    landed = _landed(warehouse.settings) if by_topic else {}
    changed = []
    for topic, row in by_topic.items():
        setting = _set(warehouse.settings, topic)
        now = dict(row, setting_policy=landed.get(topic) if setting is None else setting)
        if reported.get(topic, row["cluster_policy"]) != row["cluster_policy"]:
            now |= {"cluster_policy": reported[topic], "observed_at": moments.now()}
        now |= _in_effect(now, shown.get(topic, row["source"] == LOG))
        if now != row:
            changed.append(now)
    return changed


def _in_effect(row: Row, log_shows_compaction: bool = False) -> Row:
    """Return which policy counts: in doubt one that compacts, because absent records are then not necessarily lost.

    A log that shows compaction was compacted, even if its topic has another policy now.
    """
    policies = {source: policy for source in ("setting", "cluster") if (policy := row[f"{source}_policy"]) is not None}
    source = max(
        policies, key=lambda source_of: _compacts(policies[source_of]), default=None
    )  # the setting, if both agree
    policy = policies[source] if source else None
    if log_shows_compaction:
        source, policy = LOG, policy if policy is not None and _compacts(policy) else "compact"
    return {
        "cleanup_policy": policy,
        "source": source,
        "is_compacted": None if policy is None else _compacts(policy),
    }


def _compacts(policy: str) -> bool:
    return "compact" in policy.split(",")


def _set(settings: Settings, topic: str) -> str | None:
    """Return the cleanup.policy that the settings give for a topic."""
    policies = (entry.policy for entry in settings.segments.cleanup_policy if globs.matches(entry.topic, topic))
    return next(policies, None)


def _landed(settings: Settings) -> dict[str, str]:
    """Return topics' policies from ``topic.properties`` beside landed segments; in doubt one that compacts."""
    policies: dict[str, str] = {}
    for path in sorted(settings.landing_of("segments").glob(f"*/{TOPIC_PROPERTIES}")):
        named = _DIRECTORY.fullmatch(path.parent.name)
        policy = _stated(path) if named else None
        if named and policy is not None and not _compacts(policies.get(named[1], "")):
            policies[named[1]] = policy
    return policies


def _stated(path: Path) -> str | None:
    """Return the cleanup.policy that a file of topic properties states; None if it states none that Kafka knows."""
    try:
        with path.open("rb") as file:
            stated = _POLICY.findall(file.read(MOST_OF_PROPERTIES))
        return CleanupPolicy(topic="-", policy=stated[-1].decode()).policy if stated else None
    except (OSError, ValueError):
        log.warning("%r states no cleanup.policy that can be read.", str(path))
        return None


def _reported(warehouse: Warehouse, topics: list[str]) -> Mapping[str, str]:
    """Return the policies that the cluster reports, for topics that Afterlog may describe; empty without an answer."""
    servers = warehouse.settings.kafka.bootstrap_servers
    if not servers or not topics or time.monotonic() < _silent_until.get(servers, 0.0):
        return {}
    followed = (known.topics.get(warehouse.cluster) for known in _progress(warehouse))
    ids = {topics.cluster_id for topics in followed if topics and topics.cluster_id}
    try:
        with connected(warehouse.settings) as cluster:
            return cluster.cleanup_policies(topics, ids)
    except AfterlogError as error:
        _silent_until[servers] = time.monotonic() + PATIENCE_SECONDS
        log.warning("The cluster cannot be asked for cleanup.policy; what it said before stays. %s", error)
        return {}


def _progress(warehouse: Warehouse) -> list[progress.Progress]:
    landed = (progress.load(warehouse, stage.table) for stage in stages_of_type(Land))
    return [known for known in landed if known]
