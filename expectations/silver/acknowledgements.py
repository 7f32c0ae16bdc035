"""Contract of silver.acknowledgements: the success or failure that producers were told for each record."""

from expectations.bronze.dlq_records import HEADERS
from expectations.contract import Column, Contract
from expectations.json_lines import EVIDENCE, READABLE
from expectations.provenance import origin
from expectations.rules import GREATEST_MILLIS, at_least, between, is_true, not_null, one_of

UNKNOWN_PARTITION, UNKNOWN_OFFSET, UNKNOWN_SIZE = -1, -1, -1
OUTCOMES = ("ACKNOWLEDGED", "FAILED", "UNKNOWN")

CONTRACT = Contract(
    table="silver.acknowledgements",
    description="One row per acknowledgement, of a success or a failure, as the interceptor got it (KIP-512).",
    columns=(
        *origin("bronze.acknowledgements"),
        Column(
            "topic",
            "string",
            "Topic that the record was sent to, which need not exist.",
            (
                not_null("An acknowledgement names the topic.").where(READABLE),
                is_true("named", "topic <> ''", "A topic has a name.").failing("came with an empty topic"),
            ),
        ),
        Column(
            "partition",
            "int",
            "Partition; -1 where it is unknown, as of a record that failed before it was assigned one.",
            (
                at_least(UNKNOWN_PARTITION),
                is_true("of_success", "partition >= 0", "A record that was written is in a partition.")
                .where("outcome = 'ACKNOWLEDGED'")
                .failing("came as a success without a partition"),
            ),
        ),
        Column(
            "offset",
            "bigint",
            "Offset; -1 where it is unknown: with an error, and of a success that came without one.",
            (
                at_least(UNKNOWN_OFFSET),
                is_true("unknown_on_failure", "offset = -1", "An error comes without an offset.")
                .where("error IS NOT NULL")
                .failing("came with an error and an offset"),
            ),
        ),
        Column(
            "timestamp",
            "timestamp",
            "Timestamp of the record; null where it is unknown (-1).",
            (between(-1, GREATEST_MILLIS, "A time in epoch milliseconds.").of("timestamp_millis"),),
        ),
        Column("key_size", "int", "Bytes of the serialized key; -1 where there is none, or it is unknown."),
        Column("value_size", "int", "Bytes of the serialized value; -1 where there is none, or it is unknown."),
        Column(
            "error",
            "string",
            "Exception, class and message, or the error code's name; null on success.",
            content="message",
        ),
        Column("error_class", "string", "Class of the exception, where the text begins with one."),
        Column(
            "headers", HEADERS, "Headers of the record in order, with those that interceptors added.", content="headers"
        ),
        Column(
            "trace_id",
            "string",
            "Trace of the message, from the header that the settings name; else null.",
            content="text",
        ),
        Column("client_id", "string", "The producer's client.id, where the sender adds it.", content="text"),
        Column(
            "acknowledged_at",
            "timestamp",
            "When the producer was told, where the sender adds it.",
            (between(0, GREATEST_MILLIS, "A time in epoch milliseconds.").of("acknowledged_at_millis"),),
        ),
        Column(
            "outcome",
            "string",
            "ACKNOWLEDGED: success at an offset. FAILED: the error rules out that the record was written. UNKNOWN: the"
            " error leaves that open, such as a timeout or a disconnect, or a success came without an offset.",
            (
                not_null("An acknowledgement says how it went.").where(READABLE),
                one_of(*OUTCOMES),
            ),
        ),
        Column("slice", "string", "Part of gold.message_ledger that the acknowledgement is of."),
        Column("timestamp_millis", "bigint", "The timestamp as the line says it.", evidence=True),
        Column("acknowledged_at_millis", "bigint", "When the producer was told, as the line says it.", evidence=True),
        *EVIDENCE,
    ),
    # _bronze_id identifies an acknowledgement; the other columns let Delta skip files.
    grain=("cluster", "topic", "partition", "outcome", "_bronze_id", "offset"),
    ranges_per=("cluster", "topic", "partition", "outcome"),
    sorted_by="slice",
    scope="topic",
)
