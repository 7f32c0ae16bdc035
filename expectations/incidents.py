"""Columns that the contracts of tables about incidents share: what goes into a fingerprint, and counts of records."""

from expectations.contract import Column
from expectations.rules import at_least, matches, not_null

CLUSTER = Column("cluster", "string", "Kafka cluster, a setting.", (not_null("Every row belongs to a cluster."),))
FINGERPRINT = Column(
    "fingerprint",
    "string",
    "Hash of what dead letters of one incident share: the columns from consumer_group to error_frame, the"
    " cluster and, without a group, the owner.",
    (matches("hexadecimal", r"\A[0-9a-f]{16}\z", "A fingerprint has 16 hexadecimal digits."),),
)
SIGNATURE = (
    Column("consumer_group", "string", "Group that failed on the records; null where the writer names none."),
    Column("original_topic", "string", "Topic (or topic UUID) that the records come from."),
    Column("disposition", "string", "Why the records were dead-lettered; null where nothing tells."),
    Column("exception_class", "string", "Class of the exception."),
    Column("exception_cause_class", "string", "Class of the exception's cause."),
    Column("error_pattern", "string", "First line of the error message; what varies in it is `<*>`.", content="text"),
    Column("error_frame", "string", "Top frame of the stack trace that is not of a framework, without its line."),
)
OWNER = Column(
    "owner",
    "string",
    "Whom they belong to: the group or, if the headers name none, the connector, or the writer on its DLQ topic; null"
    " in rows from before the column.",
    later=True,
)

ATTRIBUTE = "kind: string, name: string, value: bigint"
ATTRIBUTES = (
    "kind: header, schema_id or key_prefix; name: of the header, or which part has the schema id; value: the schema "
    "id, or a hash of the value"
)
RECORD_COUNT = Column("record_count", "bigint", "Dead-letter records.", (at_least(1, "A row has records."),))
