"""Contract of silver.dlq_records: one typed row for each dead-letter record, whoever wrote its headers."""

from expectations.bronze.dlq_records import HEADERS
from expectations.contract import Column, Contract
from expectations.owners import UNKNOWN
from expectations.provenance import origin
from expectations.rules import INT32, INT64, Rule, at_least, is_true, matches, not_null, one_of, readable

DISPOSITIONS = (
    "MAX_DELIVERY_ATTEMPTS_REACHED",
    "CLIENT_REJECTED",
    "CIRCUIT_BREAKER_ARCHIVED",
    "COORDINATOR_INITIATED",
)
HOPS = "array<struct<profile: string, topic: string, partition: int, offset: bigint, consumer_group: string>>"
TOPIC_NAME = r"\A(?!\.{1,2}\z)[a-zA-Z0-9._-]{1,249}\z"

_LEAP_YEAR = "[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00"
_MONTH_AND_DAY = (
    "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?"
# A calendar date that exists, of the years 0001 to 9999, and a time of day; no leap second, which Java cannot print.
ISO_8601_UTC = rf"\A(?!0000)(?:[0-9]{{4}}-(?:{_MONTH_AND_DAY})|(?:{_LEAP_YEAR})-02-29)T{_TIME}(?:Z|\+00(?::?00)?)\z"

PROFILES = ("kip-1317", "kip-1191", "kafka-streams", "kafka-connect", "spring-kafka")
"""The header profiles that contracts name; ``conf/profiles/`` and the settings have more."""

READABLE = "error IS NULL"
MAPPED = f"header_profile NOT IN ({', '.join(map(repr, (*PROFILES, UNKNOWN)))})"
SPECIFIED = f"header_profile IN ({', '.join(map(repr, PROFILES))})"
SHARE_GROUP = "header_profile IN ('kip-1317', 'kip-1191')"
KIP_1317 = "header_profile = 'kip-1317'"


def _decoded(field: str) -> str:
    return f"undecodable_headers IS NULL OR NOT array_contains(undecodable_headers, '{field}')"


def _needed(field: str, text: str) -> str:
    """Return an expression that is null if a specified profile's record lacks a field that it needs.

    A share group names it; other writers can have a header of null. The rule counts all records of these profiles, so
    that a few that lack the field break no gate.
    """
    return f"IF({SHARE_GROUP} OR array_contains(missing_fields, '{field}'), {text}, '')"


def _utf8(field: str) -> Rule:
    return is_true(
        "utf8", f"NOT array_contains(undecodable_headers, '{field}')", "The header's bytes are UTF-8."
    ).failing(f"had bytes that are not UTF-8 as {field}")


CONTRACT = Contract(
    table="silver.dlq_records",
    description="One row per record of a dead-letter topic, its headers read by the profile of who wrote them.",
    columns=(
        *origin(
            "bronze.dlq_records", "record", "File below the feed's landing directory that the record was read from."
        ),
        Column(
            "dlq_topic",
            "string",
            "Dead-letter topic that holds the record.",
            (not_null("A line names the topic of its record.").where(READABLE),),
        ),
        Column(
            "dlq_topic_id",
            "string",
            "Topic id of the dead-letter topic; null where the record came from files alone.",
        ),
        Column(
            "dlq_partition",
            "int",
            "Partition of the dead-letter topic.",
            (not_null("A line names the partition of its record.").where(READABLE), at_least(0)),
        ),
        Column(
            "dlq_offset",
            "bigint",
            "Offset in the dead-letter topic.",
            (not_null("A line names the offset of its record.").where(READABLE), at_least(0)),
        ),
        Column("dlq_timestamp", "timestamp", "Kafka's timestamp of the dead-letter record; null where Kafka has none."),
        Column("dlq_timestamp_type", "int", "Type of Kafka's timestamp: 0 CreateTime, 1 LogAppendTime."),
        Column(
            "header_profile",
            "string",
            "Who wrote the newest set of headers: kip-1317 (with or without the headers of kip-1191), kip-1191, "
            "kafka-streams, kafka-connect, spring-kafka, another profile of docs/writers.md or of the settings; "
            "unknown where no header and nothing else says who writes the topic.",
            (
                not_null("A record has its writer's headers, if anything tells that a writer puts headers there.")
                .where(READABLE)
                .failing("came without headers of a known profile", "record")
                .hinting(
                    "Their headers look like a writer's that no profile knows: [[dlq.profile]] teaches it to Afterlog. "
                    "Or other records, a share group's settings or [[dlq.require]] say who writes these topics: were "
                    "its headers switched off?"
                ),
                is_true(
                    "required",
                    "header_profile <=> required_profile OR "
                    "coalesce(array_contains(header_profiles, required_profile), false)",
                    "The record carries the header profile that the settings require for its topic.",
                )
                .where(f"{READABLE} AND required_profile IS NOT NULL")
                .failing("came without the header profile that the settings require", "record")
                .hinting(
                    "The topics must carry the profile that [[dlq.require]] names: "
                    "was the broker's share.group.dlq.disposition.header.enable set to false?"
                ),
                is_true("mandatory", "size(missing_fields) = 0", "The record has all that its profile marks mandatory.")
                .where(MAPPED)
                .failing("lacked headers that their profile marks mandatory", "record")
                .hinting("Mandatory headers are missing: missing_headers names them."),
                is_true(
                    "decodes",
                    "size(undecoded_fields) = 0",
                    "What the profile maps decodes as its encoding and its field want.",
                )
                .where(MAPPED)
                .failing("had headers that do not decode as their profile says", "record")
                .hinting(
                    "Headers do not decode as their profile says: undecoded_fields names their fields. A "
                    "[[dlq.profile]] of the same name in the settings replaces a shipped one."
                ),
            ),
        ),
        Column(
            "disposition",
            "string",
            "Why the record was dead-lettered, one of KIP-1317's four values; null where nothing tells.",
            (
                not_null("KIP-1317 makes the header mandatory.").where(KIP_1317),
                _utf8("disposition"),
                one_of(*DISPOSITIONS, meaning="KIP-1317 knows four values.").where(_decoded("disposition")),
            ),
        ),
        Column("disposition_source", "string", "What tells the disposition: header, message or unknown."),
        Column(
            "original_topic",
            "string",
            "Topic of the record that failed, or its topic id where the broker knew no name.",
            (
                not_null("Every specified profile names the topic.")
                .of(_needed("original_topic", "original_topic"))
                .where(SPECIFIED),
                _utf8("original_topic"),
                matches("legal_topic_name", TOPIC_NAME, "Kafka would allow a topic of this name.")
                .where(_decoded("original_topic"))
                .failing("named a topic that Kafka would not allow", "record"),
            ),
        ),
        Column("original_topic_id", "string", "Topic id, where original_topic is one."),
        Column(
            "original_partition",
            "int",
            "Partition of the record that failed.",
            (
                not_null("Every specified profile names the partition.")
                .of(_needed("original_partition", "original_partition_text"))
                .where(SPECIFIED),
                _utf8("original_partition"),
                matches("decimal_int32", INT32, "The partition is a decimal int32 of at least 0, as Kafka prints it.")
                .of("original_partition_text")
                .where(_decoded("original_partition"))
                .failing("had a partition that is no decimal int32 of at least 0", "record"),
            ),
        ),
        Column(
            "original_offset",
            "bigint",
            "Offset of the record that failed.",
            (
                not_null("Every specified profile names the offset.")
                .of(_needed("original_offset", "original_offset_text"))
                .where(SPECIFIED),
                _utf8("original_offset"),
                matches("decimal_int64", INT64, "The offset is a decimal int64 of at least 0, as Kafka prints it.")
                .of("original_offset_text")
                .where(_decoded("original_offset"))
                .failing("had an offset that is no decimal int64 of at least 0", "record"),
            ),
        ),
        Column(
            "original_timestamp", "timestamp", "Kafka's timestamp of the record that failed, where the headers say it."
        ),
        Column(
            "original_timestamp_type",
            "string",
            "Type of that timestamp as the headers name it.",
            (_utf8("original_timestamp_type"),),
        ),
        Column(
            "consumer_group",
            "string",
            "Group that could not consume the record.",
            (not_null("A share group names itself.").where(SHARE_GROUP), _utf8("consumer_group")),
        ),
        Column(
            "application",
            "string",
            "Application, function or client that failed on the record, where its writer names it and no group.",
            (_utf8("application"),),
        ),
        Column(
            "delivery_count",
            "int",
            "How often the record was delivered; null where absent or no number, which violates no specified profile.",
            (_utf8("delivery_count"),),
        ),
        Column(
            "error_message",
            "string",
            "Message of the broker or of the exception.",
            (_utf8("error_message"),),
            content="message",
        ),
        Column("exception_class", "string", "Class of the exception.", (_utf8("exception_class"),)),
        Column(
            "exception_cause_class",
            "string",
            "Class of the exception's cause, where the headers name it.",
            (_utf8("exception_cause_class"),),
        ),
        Column(
            "exception_stacktrace",
            "string",
            "Stack trace of the exception.",
            (_utf8("exception_stacktrace"),),
            content="trace",
        ),
        Column("connector_name", "string", "Name of the Kafka Connect connector.", (_utf8("connector_name"),)),
        Column("task_id", "string", "Task of the connector.", (_utf8("task_id"),)),
        Column("stage", "string", "Stage of the connector's pipeline that failed.", (_utf8("stage"),)),
        Column("stage_class", "string", "Class that failed in that stage.", (_utf8("stage_class"),)),
        Column(
            "routed_at",
            "timestamp",
            "When the record was dead-lettered.",
            (
                not_null("KIP-1317 makes the header mandatory.").of("routed_at_text").where(KIP_1317),
                _utf8("routed_at"),
                matches("iso_8601_utc", ISO_8601_UTC, "The timestamp is ISO-8601 with a UTC designator.")
                .of("routed_at_text")
                .where(f"{KIP_1317} AND ({_decoded('routed_at')})")
                .failing("had a time that is not ISO-8601 in UTC", "record"),
            ),
        ),
        Column(
            "routed_at_source", "string", "What tells routed_at: the profile's header, or kafka's record timestamp."
        ),
        Column("payload_copied", "boolean", "False where the broker wrote headers only; null of unknown writers."),
        Column(
            "control_marker_suspected",
            "boolean",
            "True where key and value have the bytes of a transaction's control marker; the source's log decides, see"
            " silver.dlq_control_markers.",
        ),
        Column("key", "binary", "Record key, the bytes.", content="key"),
        Column("value", "binary", "Record value, the bytes.", content="payload"),
        Column(
            "earlier_hops",
            HOPS,
            "What older sets of headers say, oldest first: where the record stood when it was dead-lettered before.",
        ),
        Column(
            "user_headers",
            HEADERS,
            "All headers in order except those of the record's profile and of earlier hops whose set is complete.",
            content="headers",
        ),
        Column(
            "reserved_header_collision",
            "boolean",
            "True where a recognised name belongs to no complete set: a user's header, or the rest of a set.",
        ),
        Column("lossy_encoding", "boolean", "True where the source's form cannot keep all bytes."),
        Column(
            "_content_hash", "bigint", "Hash of timestamp, key, value and headers: tells a duplicate from a conflict."
        ),
        Column(
            "fingerprint_version",
            "int",
            "Version of the algorithm that names the record's error and finds its incident; null: 1.",
        ),
        Column(
            "owner",
            "string",
            "Whom the record belongs to: its consumer group or, if its headers name none, `connector NAME`, or its"
            " header profile (or `unknown writer`) `on` its DLQ topic; null in rows from before the column.",
            later=True,
        ),
        Column("masked", "array<string>", "What masks hid before the record was written; else null.", later=True),
        Column("required_profile", "string", "Header profile that the settings require for the topic.", evidence=True),
        Column(
            "header_profiles",
            "array<string>",
            "The profile, or both where a share group wrote both of its sets.",
            evidence=True,
        ),
        Column(
            "original_partition_text", "string", "The partition as the header says it.", evidence=True, content="text"
        ),
        Column("original_offset_text", "string", "The offset as the header says it.", evidence=True, content="text"),
        Column(
            "original_timestamp_text",
            "string",
            "The original timestamp as the header says it.",
            evidence=True,
            content="text",
        ),
        Column(
            "delivery_count_text", "string", "The delivery count as the header says it.", evidence=True, content="text"
        ),
        Column(
            "routed_at_text", "string", "The timestamp of routing as the header says it.", evidence=True, content="text"
        ),
        Column("undecodable_headers", "array<string>", "Fields whose header is not UTF-8.", evidence=True),
        Column(
            "missing_fields",
            "array<string>",
            "Fields that missing headers would fill.",
            evidence=True,
        ),
        Column(
            "missing_headers",
            "array<string>",
            "Mandatory headers (or paths) that the record lacks of the profile that comes nearest; empty if none.",
            evidence=True,
        ),
        Column(
            "undecoded_fields",
            "array<string>",
            "Fields whose value is not what the record's profile says; null for specified profiles.",
            evidence=True,
        ),
        Column("headers", HEADERS, "All headers in order, with duplicates.", evidence=True, content="headers"),
        Column("raw", "binary", "The line, where it cannot be read as a record.", evidence=True, content="line"),
        Column(
            "error",
            "string",
            "Why the line cannot be read as a record.",
            (readable("error", "A line can be read as a record."),),
            evidence=True,
            content="text",
        ),
    ),
    grain=("cluster", "dlq_topic", "dlq_topic_id", "dlq_partition", "dlq_offset"),
    content="_content_hash",
    lossy="lossy_encoding",
    late_key="dlq_topic_id",
    position="dlq_offset",
    scope="dlq_topic",
)
