"""Contract of silver.producers: how producers ask for idempotence, and what their topics and brokers support."""

from expectations.contract import Column, Contract
from expectations.json_lines import EVIDENCE, READABLE
from expectations.provenance import origin
from expectations.rules import GREATEST_MILLIS, at_least, between, matches, not_null, one_of

MODES = ("required", "requested", "off")
VERSION = r"\A[0-9]{1,4}\.[0-9]{1,4}(?:[^0-9].*)?\z"
FORMAT = rf"(?:\A[vV]?[012]\z)|(?:{VERSION})"

CONTRACT = Contract(
    table="silver.producers",
    description="One row per distinct statement on a producer: the mode that it asks for (KIP-185), topic and brokers.",
    columns=(
        *origin("bronze.producers"),
        Column("client_id", "string", "The producer's client.id.", (not_null("It is named.").where(READABLE),)),
        Column("topic", "string", "Topic that it writes to.", (not_null("It is named.").where(READABLE),)),
        Column("client_version", "string", "Version of the client."),
        Column(
            "requested_mode",
            "string",
            "required, requested or off: enable.idempotence, of which true means required and false off.",
            (
                not_null("A statement says how idempotence is asked for.").where(READABLE),
                one_of(*MODES, meaning="KIP-185 knows three modes, true and false."),
            ),
        ),
        Column(
            "client_knows_mode",
            "boolean",
            "True where the client's version knows the mode as it is written: true and false from 0.11 on; required,"
            " requested and off from 1.0 on. Null where the version is not told.",
        ),
        Column(
            "broker_version",
            "string",
            "Version of the brokers, of the oldest if they differ.",
            (
                not_null("What is in effect depends on the brokers.").where(READABLE),
                matches("version", VERSION, "A version of Kafka, such as 0.11.0 or 4.4.0.").failing(
                    "named no version of Kafka"
                ),
            ),
        ),
        Column(
            "message_format_version",
            "string",
            "Message format of the topic: 0, 1, 2, or the version of Kafka that brought it.",
            (
                not_null("What is in effect depends on the topic's message format.").where(READABLE),
                matches("format", FORMAT, "A message format, such as 2, v1 or 0.10.2.").failing(
                    "named no message format"
                ),
            ),
        ),
        Column("message_format", "int", "Magic of the message format: 0, 1 or 2.", (between(0, 2),)),
        Column("broker_has_idempotence", "boolean", "True from 0.11 on."),
        Column(
            "broker_tells_format", "boolean", "True where brokers tell a client the topic's message format: after 0.11."
        ),
        Column("producer_id", "bigint", "The producer's id, where it is known.", (at_least(0),)),
        Column(
            "stated_at",
            "timestamp",
            "When it was so, where the sender says it: the latest statement counts.",
            (between(0, GREATEST_MILLIS, "A time in epoch milliseconds.").of("stated_at_millis"),),
        ),
        Column("enable_idempotence", "string", "The setting as the line says it.", evidence=True),
        Column("stated_at_millis", "bigint", "The time as the line says it.", evidence=True),
        *EVIDENCE,
    ),
    grain=("cluster", "client_id", "topic", "_bronze_id"),
)
