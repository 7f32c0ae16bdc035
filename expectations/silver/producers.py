"""Contract of silver.producers: the idempotence that producers' settings give them, and what their topics support."""

from expectations.contract import Column, Contract
from expectations.json_lines import EVIDENCE, READABLE
from expectations.provenance import origin
from expectations.rules import GREATEST_MILLIS, at_least, between, matches, not_null, one_of

MODES = ("required", "requested", "off")
VERSION = r"\A[0-9]{1,4}\.[0-9]{1,4}(?:[^0-9].*)?\z"
FORMAT = rf"(?:\A[vV]?[012]\z)|(?:{VERSION})"

CONTRACT = Contract(
    table="silver.producers",
    description="One row per distinct statement on a producer: settings that decide on idempotence, topic and brokers.",
    columns=(
        *origin("bronze.producers"),
        Column(
            "client_id",
            "string",
            "The producer's client.id.",
            (not_null("It is named.").where(READABLE),),
            content="text",
        ),
        Column("topic", "string", "Topic that it writes to.", (not_null("It is named.").where(READABLE),)),
        Column("client_version", "string", "Version of the client, with its library's name if it is not Kafka's own."),
        Column(
            "client_library",
            "string",
            "java, librdkafka, or the name of another library; null where no version tells it.",
        ),
        Column(
            "requested_mode",
            "string",
            "required, requested or off: enable.idempotence, of which true means required and false off. Null where it"
            " is left out: then the client's default counts.",
            (one_of(*MODES, meaning="KIP-185 knows three modes, true and false."),),
        ),
        Column("acks", "string", "all (also -1), 1 or 0; null where it is left out."),
        Column("retries", "bigint", "Setting of this name; null where it is left out."),
        Column("max_in_flight_requests_per_connection", "bigint", "Setting of this name; null where it is left out."),
        Column("transactional_id", "string", "Setting of this name; null where it is left out."),
        Column(
            "client_knows_mode",
            "boolean",
            "True where the client's version knows the mode as it is written: true and false from 0.11 on; required,"
            " requested and off from 1.0 on. Null where the version is not told, or no mode.",
        ),
        Column(
            "client_mode",
            "string",
            "What the client makes of its settings: IDEMPOTENT; PLAIN; REFUSED: it does not start. Null where that"
            " depends on the client's version, which is not told.",
            (one_of("IDEMPOTENT", "PLAIN", "REFUSED"),),
        ),
        Column(
            "contradiction",
            "string",
            "Setting that idempotence does not go with: acks, retries, max_in_flight, or transactional_id without"
            " idempotence; null where there is none.",
        ),
        Column(
            "is_on_by_default", "boolean", "True where the client's documentation says that idempotence is the default."
        ),
        Column("most_in_flight", "int", "The most requests in flight that the client allows with idempotence."),
        Column(
            "broker_version",
            "string",
            "Version of the brokers, of the oldest if they differ; null where it is not told.",
            (
                matches("version", VERSION, "A version of Kafka, such as 0.11.0 or 4.4.0.").failing(
                    "named no version of Kafka"
                ),
            ),
        ),
        Column(
            "message_format_version",
            "string",
            "Message format of the topic: 0, 1, 2, or the version of Kafka that brought it; null where it is not told.",
            (
                matches("format", FORMAT, "A message format, such as 2, v1 or 0.10.2.").failing(
                    "named no message format"
                ),
            ),
        ),
        Column(
            "message_format",
            "int",
            "Magic of the message format: 0, 1 or 2. Brokers from 3.0 on write 2, whatever is said. Null: not known.",
            (between(0, 2),),
        ),
        Column(
            "broker_has_idempotence", "boolean", "True from 0.11 on, and where message format 2 is; null: not known."
        ),
        Column(
            "broker_tells_format",
            "boolean",
            "True where brokers tell a client the topic's message format: after 0.11; null: not known.",
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
