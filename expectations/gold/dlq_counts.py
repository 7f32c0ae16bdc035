"""Contract of gold.dlq_counts: what gold.dlq_summary adds up of the dead-lettered records."""

from expectations.contract import Column, Contract
from expectations.incidents import OWNER
from expectations.rules import at_least, is_true, not_null

CLUSTER = Column("cluster", "string", "Kafka cluster, a setting.", (not_null("Every row belongs to a cluster."),))
GROUPS = (
    Column(
        "hour",
        "timestamp",
        "Hour of routed_at (UTC), its beginning.",
        (
            is_true("whole_hour", "hour = date_trunc('HOUR', hour)", "An hour begins at minute 0."),
            is_true(
                "holds_its_records",
                "first_routed_at >= hour AND last_routed_at < hour + INTERVAL 1 HOUR",
                "The records counted in an hour were routed in it.",
            ),
        ),
    ),
    Column("dlq_topic", "string", "Dead-letter topic.", (not_null("Every record stands in a DLQ topic."),)),
    Column("original_topic", "string", "Topic (or topic UUID) that the records come from, as their headers say."),
    Column("consumer_group", "string", "Group that failed on the records; null where the writer names none."),
    Column("disposition", "string", "Why the records were dead-lettered; null where nothing tells."),
    Column("record_count", "bigint", "Dead-letter records.", (at_least(1, "A group of records is not empty."),)),
    Column(
        "source_record_count",
        "bigint",
        "Distinct source records (partition, offset) among them: fewer than records where some came back.",
        (
            is_true(
                "between_1_and_record_count",
                "source_record_count BETWEEN 1 AND record_count",
                "Each record has one source record.",
            ),
        ),
    ),
    Column(
        "without_payload_count",
        "bigint",
        "Records whose payload was not copied.",
        (
            is_true(
                "between_0_and_record_count",
                "without_payload_count BETWEEN 0 AND record_count",
                "No more records lack a payload than there are.",
            ),
        ),
    ),
    Column("most_deliveries", "int", "Highest delivery count; null where the writer counts none."),
    Column("first_routed_at", "timestamp", "When the first of the records was dead-lettered."),
    Column(
        "last_routed_at",
        "timestamp",
        "When the last of the records was dead-lettered.",
        (is_true("not_before_first", "last_routed_at >= first_routed_at", "The last is not before the first."),),
    ),
    Column(
        "late_count",
        "bigint",
        "Records that a run accepted more than an hour after the end of their hour.",
        (
            is_true(
                "between_0_and_record_count",
                "late_count BETWEEN 0 AND record_count",
                "No more records are late than there are.",
            ),
        ),
    ),
    Column("first_accepted_at", "timestamp", "When the run that accepted the first of the records began."),
    Column("last_accepted_at", "timestamp", "When the run that accepted the last of the records began."),
    OWNER,
)

CONTRACT = Contract(
    table="gold.dlq_counts",
    description="One row per slice of a source topic, hour, topics, owner and disposition; proved markers left out.",
    columns=(
        CLUSTER,
        Column("source_slice", "string", "Part of the source topic; null where the headers name no source record."),
        *GROUPS,
    ),
    grain=("cluster", "source_slice", "hour", "dlq_topic", "original_topic", "consumer_group", "disposition", "owner"),
)
