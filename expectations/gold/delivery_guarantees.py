"""Contract of gold.delivery_guarantees: the idempotence that producers ask for, and whether it is in effect."""

from expectations.contract import Column, Contract
from expectations.rules import at_least, not_null, one_of
from expectations.silver.producers import MODES

VERDICTS = ("OK", "SILENTLY_OFF", "WOULD_FAIL", "DUPLICATES_POSSIBLE", "UNKNOWN")

CONTRACT = Contract(
    table="gold.delivery_guarantees",
    description="One row per producer and topic, by what its client and its brokers make of its settings.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("client_id", "string", "The producer's client.id.", (not_null(),), content="text"),
        Column("topic", "string", "Topic that it writes to.", (not_null(),)),
        Column(
            "requested_mode",
            "string",
            "required, requested or off (KIP-185); null where enable.idempotence is left out.",
            (one_of(*MODES),),
        ),
        Column(
            "effective_mode",
            "string",
            "IDEMPOTENT; PLAIN, also where the client does not know the mode; REFUSED: the client does not start;"
            " UNSUPPORTED: sends fail. Null: not known.",
            (one_of("IDEMPOTENT", "PLAIN", "REFUSED", "UNSUPPORTED"),),
        ),
        Column(
            "observed_mode",
            "string",
            "IDEMPOTENT, PLAIN or MIXED: what landed batches show; null where none landed. It decides no verdict.",
            (one_of("IDEMPOTENT", "PLAIN", "MIXED"),),
        ),
        Column(
            "observed_by",
            "string",
            "producer: batches of the producer's own id; topic: any producer's.",
            (one_of("producer", "topic"),),
        ),
        Column(
            "verdict",
            "string",
            "OK; SILENTLY_OFF: it asks for idempotence, or its client should have it by default, and has none;"
            " WOULD_FAIL: the client does not start, or sends fail; DUPLICATES_POSSIBLE; UNKNOWN.",
            (not_null(), one_of(*VERDICTS)),
        ),
        Column(
            "sentence", "string", "What to tell the application's owner.", (not_null("A verdict is put in words."),)
        ),
        Column("client_version", "string", "Version of the client."),
        Column("broker_version", "string", "Version of the brokers."),
        Column("message_format_version", "string", "Message format of the topic."),
        Column("stated_at", "timestamp", "When it was so, as the latest statement says."),
        Column("statement_count", "bigint", "Distinct statements on the producer and topic.", (at_least(1),)),
        Column("producer_ids", "array<bigint>", "Producer ids that the statements carry."),
    ),
    grain=("cluster", "client_id", "topic"),
)
