"""Contract of silver.dlq_errors: what the dead letters of one error have in common, by slice and half hour."""

from expectations.contract import Column, Contract
from expectations.incidents import ATTRIBUTE, ATTRIBUTES, CLUSTER, FINGERPRINT, OWNER, RECORD_COUNT, SIGNATURE
from expectations.rules import is_true, not_null

CONTRACT = Contract(
    table="silver.dlq_errors",
    description="One row per slice of a source topic, fingerprint of an error and half hour; proved markers left out.",
    columns=(
        CLUSTER,
        Column("source_slice", "string", "Part of the source topic; null where the headers name no source record."),
        FINGERPRINT,
        Column(
            "half_hour",
            "timestamp",
            "Half hour of routed_at, its beginning; of the DLQ record's time, or of its landing, if it is unknown.",
            (
                not_null(),
                is_true(
                    "holds_its_records",
                    "first_at >= half_hour AND last_at < half_hour + INTERVAL 30 MINUTES",
                    "The records of a half hour were dead-lettered in it.",
                ),
            ),
        ),
        *SIGNATURE,
        Column("original_partition", "int", "Partition of the source topic."),
        Column("algorithm_version", "int", "Version of the algorithm that names the error.", (not_null(),)),
        RECORD_COUNT,
        Column(
            "source_record_count",
            "bigint",
            "Distinct source records among them.",
            (
                is_true(
                    "between_1_and_record_count",
                    "source_record_count BETWEEN 1 AND record_count",
                    "Each record has one source record.",
                ),
            ),
        ),
        Column("first_at", "timestamp", "When the first of the records was dead-lettered."),
        Column("last_at", "timestamp", "When the last of the records was dead-lettered."),
        Column(
            "minutes",
            "array<struct<minute: bigint, first_at: bigint, last_at: bigint, record_count: bigint>>",
            "Each minute with records, its first and last record's time; all in microseconds since 1970.",
        ),
        Column("first_offset", "bigint", "Least offset in the source topic."),
        Column("last_offset", "bigint", "Greatest offset in the source topic."),
        Column(
            "seen_before",
            "array<bigint>",
            "For each source record that an earlier half hour has too: the latest such half hour, in microseconds.",
        ),
        Column("dense_count", "bigint", "Source records that are one of five on successive offsets."),
        Column("scattered_count", "bigint", "Source records that are one of nine among at most 81 offsets."),
        Column("scattered_span", "bigint", "Sum of the spans of these nine offsets."),
        Column("step_of_two_count", "bigint", "Source records whose predecessor is 2 offsets before."),
        Column("step_of_three_count", "bigint", "Source records whose predecessor is 3 offsets before."),
        Column(
            "top_offsets",
            "array<struct<negative: bigint, value: bigint>>",
            "The 12 source offsets with most records, as the negative number of records and the offset.",
        ),
        Column(
            "top_keys",
            "array<struct<negative: bigint, value: bigint>>",
            "The 8 keys with most records, as the negative number of records and the key's hash.",
        ),
        Column("least_keys", "array<bigint>", "The 64 least hashes of keys: they tell how many keys there are."),
        Column("keyed_count", "bigint", "Records with a key."),
        Column(
            "attributes",
            f"array<struct<negative: bigint, {ATTRIBUTE}>>",
            f"The 24 attributes with most records, with the negative number of records ({ATTRIBUTES}).",
        ),
        Column(
            "dlq_topics",
            "array<struct<dlq_topic: string, last_at: bigint>>",
            "Dead-letter topics, and the time of the last record in each, in microseconds.",
        ),
        Column("without_payload_count", "bigint", "Records whose payload was not copied."),
        Column("inferred_count", "bigint", "Records whose disposition is inferred from the error message."),
        Column("suspected_count", "bigint", "Records that look like a transaction's control marker."),
        Column("most_deliveries", "int", "Highest delivery count; null where the writer counts none."),
        OWNER,
    ),
    grain=("cluster", "source_slice", "fingerprint", "half_hour"),
)
