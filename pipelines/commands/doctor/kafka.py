"""Checks of clusters: offsets to be read or gone, cleanup policies, settings that would lose dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from expectations.quality import GAPS
from expectations.rules import counted
from pipelines import moments
from pipelines.catalog import stages_of_type
from pipelines.commands import findings
from pipelines.commands.check import Check, environment_error, greatest
from pipelines.commands.doctor.warehouse import was_written
from pipelines.errors import AfterlogError
from pipelines.stage import Land
from pipelines.steps.waiting import waiting
from pipelines.warehouse import jvmless, progress
from pipelines.warehouse.tables import Warehouse

LEDGER, POLICIES = "gold.message_ledger", "silver.topic_policies"


def check_topics(warehouse: Warehouse) -> Iterator[Check]:
    """Ask the cluster how many offsets are left to read, for each feed that reads topics."""
    for stage in stages_of_type(Land):
        topics = warehouse.settings.topics_of(stage.directory)
        if topics is None:
            continue
        name = f"topics of {stage.feed}"
        known = progress.load(warehouse, stage.table) if warehouse.opens_tables else None
        try:
            late = waiting(warehouse.settings, [(stage, known)])[stage.table]
        except AfterlogError as error:
            yield environment_error(name, str(error))
            continue
        topics_there = f"{topics.wanted} at {warehouse.settings.kafka.bootstrap_servers}"
        finding = f"{counted(late, 'offset')} to be read" if late else "all is read"
        if topics.isolation_level == "read_uncommitted":
            remedy = 'Set isolation_level = "read_committed" unless that is wanted.'
            yield Check(
                name, "warning", f"{topics_there}: {finding}, what aborted transactions wrote included.", remedy
            )
        else:
            yield Check(name, "ok", f"{topics_there}: {finding}.")


def check_gaps(warehouse: Warehouse) -> Iterator[Check]:
    """Count the offsets that were gone before they were read."""
    if not warehouse.opens_tables or warehouse.last_version(GAPS.table) is None:
        return
    gaps = jvmless.rows(warehouse, GAPS.table, {"cluster": warehouse.cluster})
    if gaps:
        gone = sum(gap["to_offset"] - gap["from_offset"] for gap in gaps)
        last = max(gaps, key=lambda gap: (gap["found_at"], gap["topic"], gap["partition"]))
        yield Check(
            "gaps",
            "warning",
            f"{counted(gone, 'offset')} of {counted(len({gap['topic'] for gap in gaps}), 'topic')} "
            f"{'was' if gone == 1 else 'were'} gone before {'it was' if gone == 1 else 'they were'} read, "
            f"the last found at {last['found_at']:%Y-%m-%d %H:%M:%S} UTC in {last['topic']}, "
            f"partition {last['partition']}.",
            "quality.gaps names them all. Run more often, or have those topics keep their records longer.",
        )


def check_cleanup_policies(warehouse: Warehouse) -> Iterator[Check]:
    """Name the topics with ABSENT messages for which nothing tells whether compaction removed them."""
    if not was_written(warehouse, POLICIES) or not was_written(warehouse, LEDGER):
        return
    try:
        rows = jvmless.rows(warehouse, POLICIES, {"cluster": warehouse.cluster}, ["topic", "is_compacted"])
        if not (unknown := {row["topic"] for row in rows if row["is_compacted"] is None}):
            return
        by_topic = "SELECT topic, count(*) AS row_count FROM rows WHERE outcome = 'ABSENT' GROUP BY topic"
        absences = jvmless.query(warehouse, LEDGER, by_topic, {"cluster": warehouse.cluster})
    except Exception:  # the table cannot be read, which ``check_tables`` reports
        return
    if absent := Counter({row["topic"]: row["row_count"] for row in absences if row["topic"] in unknown}):
        yield Check(
            "cleanup policies",
            "warning",
            f"{_absent(absent.total())}: {greatest(absent)}.",
            "Name the cleanup.policy of these topics under [[segments.cleanup_policy]], or grant Afterlog "
            "DescribeConfigs on them; the next `afterlog run` decides.",
        )


def _absent(messages: int) -> str:
    """Return words that say how many messages are ABSENT."""
    if messages == 1:
        words = "is absent from its log (ABSENT), and nothing tells whether compaction removed it or it is lost"
    else:
        words = (
            "are absent from their logs (ABSENT), and nothing tells whether compaction removed them or they are lost"
        )
    return f"{counted(messages, 'acknowledged message')} {words}"


def check_dead_letter_settings(warehouse: Warehouse) -> Iterator[Check]:
    """Tell how many groups would lose dead letters, or write useless ones, with the settings as they are."""
    if not was_written(warehouse, findings.MISTAKES):
        return
    try:
        mistakes = findings.mistakes_of(warehouse, moments.now())
    except Exception:  # the table cannot be read, which ``check_tables`` reports
        return
    if kinds := Counter(mistake["kind"] for mistake in findings.urgent(mistakes)):
        yield Check(
            "dead-letter settings",
            "warning",
            f"{counted(kinds.total(), 'mistake')} in the settings of groups and topics would lose dead letters "
            f"or payloads: {greatest(kinds)}.",
            "`afterlog top` shows each with the command that repairs it; `afterlog collect` asks the cluster again.",
        )
