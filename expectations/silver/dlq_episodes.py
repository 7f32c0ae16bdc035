"""Contract of silver.dlq_episodes: stretches of time in which dead letters of one error keep coming."""

from expectations.contract import Column, Contract
from expectations.incidents import ATTRIBUTE, ATTRIBUTES, CLUSTER, FINGERPRINT, OWNER, SIGNATURE
from expectations.rules import SPOKEN, at_least, is_true, not_null

INCIDENT_ID = Column(
    "incident_id",
    "string",
    "Id of the incident, which never changes.",
    (SPOKEN,),
)
IDENTITY = (
    Column("anchor_at", "timestamp", "First record of the incident when its id was given.", (not_null(),)),
    Column("algorithm_version", "int", "Version of the algorithm that found it.", (not_null(),)),
    Column("merged_into", "string", "Incident that this one turned out to be a part of; else null."),
    Column("predecessor_id", "string", "Incident of the same fingerprint before this one; null: it is the first."),
)
TIMES = (
    Column(
        "first_at",
        "timestamp",
        "First record, or when it was read if it has no time; null if no records count any more, or it was merged.",
    ),
    Column(
        "last_at",
        "timestamp",
        "Last record, or when it was read if it has no time.",
        (is_true("not_before_first", "last_at >= first_at", "The last is not before the first."),),
    ),
    Column("pause_seconds", "bigint", "The silence after its last record that ends it: half an hour to a day."),
)
COUNTS = (
    Column("record_count", "bigint", "Dead-letter records.", (at_least(0, "Counts are not negative."),)),
    Column(
        "source_record_count",
        "bigint",
        "Distinct source records among them.",
        (
            is_true(
                "between_0_and_record_count",
                "source_record_count BETWEEN 0 AND record_count",
                "Each record has one source record.",
            ),
        ),
    ),
    Column("key_count", "bigint", "Distinct keys; an estimate if there are more than 63."),
    Column("is_key_count_exact", "boolean", "True where key_count is no estimate."),
    Column("keyed_count", "bigint", "Records with a key."),
    Column("without_payload_count", "bigint", "Records whose payload was not copied."),
    Column("inferred_count", "bigint", "Records whose disposition is inferred from the error message."),
    Column("suspected_count", "bigint", "Records that look like a transaction's control marker."),
    Column("most_deliveries", "int", "Highest delivery count; null where the writer counts none."),
)
EXTENT = (
    Column(
        "partitions",
        "array<struct<original_partition: int, record_count: bigint, source_record_count: bigint, first_offset: bigint,"
        " last_offset: bigint>>",
        "Partitions of the source topic.",
    ),
    Column(
        "top_records",
        "array<struct<original_partition: int, original_offset: bigint, record_count: bigint>>",
        "The 12 source records with most dead letters: all, if they can be poison pills.",
    ),
    Column(
        "dlq_topics",
        "array<struct<dlq_topic: string, last_at: bigint>>",
        "Dead-letter topics, and the time of the incident's last record in each, in microseconds since 1970.",
    ),
    Column(
        "timeline",
        "array<struct<half_hour: bigint, record_count: bigint>>",
        "Records by half hour, its beginning in microseconds since 1970; half hours without records are left out.",
    ),
)
ESCALATIONS = Column(
    "escalations",
    "array<struct<at: bigint, before_per_hour: double, after_per_hour: double>>",
    "Changes to a rate ten times as high: when, in microseconds since 1970, and the records an hour before and after.",
    later=True,
)

CONTRACT = Contract(
    table="silver.dlq_episodes",
    description="One row per episode of an error, and per id that was merged or has no records any more.",
    columns=(
        CLUSTER,
        INCIDENT_ID,
        FINGERPRINT,
        *SIGNATURE,
        *IDENTITY,
        *TIMES,
        *COUNTS,
        *EXTENT,
        Column("dense_count", "bigint", "Source records that are one of five on successive offsets."),
        Column("scattered_count", "bigint", "Source records that are one of nine among at most 81 offsets."),
        Column("scattered_span", "bigint", "Sum of the spans of these nine offsets."),
        Column("step_of_two_count", "bigint", "Source records whose predecessor is 2 offsets before."),
        Column("step_of_three_count", "bigint", "Source records whose predecessor is 3 offsets before."),
        Column(
            "top_keys",
            "array<struct<value: bigint, record_count: bigint>>",
            "The 8 keys with most records, as hashes.",
        ),
        Column(
            "attributes",
            f"array<struct<{ATTRIBUTE}, record_count: bigint>>",
            f"The 24 attributes with most records ({ATTRIBUTES}).",
        ),
        OWNER,
        ESCALATIONS,
        Column(
            "repeat_count",
            "bigint",
            "How often source records were seen in a further half hour: counts of neighbours count them in each.",
            later=True,
        ),
    ),
    grain=("cluster", "incident_id"),
)
