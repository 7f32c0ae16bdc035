"""Kafka's error codes and names, as of 4.4.0; the codes of streams groups' APIs; errors that rule a write out."""

import re

NAMES = {
    -1: "UNKNOWN_SERVER_ERROR",
    0: "NONE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    9: "REPLICA_NOT_AVAILABLE",
    10: "MESSAGE_TOO_LARGE",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    17: "INVALID_TOPIC_EXCEPTION",
    18: "RECORD_LIST_TOO_LARGE",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    21: "INVALID_REQUIRED_ACKS",
    24: "INVALID_GROUP_ID",
    25: "UNKNOWN_MEMBER_ID",
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    32: "INVALID_TIMESTAMP",
    33: "UNSUPPORTED_SASL_MECHANISM",
    34: "ILLEGAL_SASL_STATE",
    35: "UNSUPPORTED_VERSION",
    41: "NOT_CONTROLLER",
    42: "INVALID_REQUEST",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    44: "POLICY_VIOLATION",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    46: "DUPLICATE_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH",
    48: "INVALID_TXN_STATE",
    49: "INVALID_PRODUCER_ID_MAPPING",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    56: "KAFKA_STORAGE_ERROR",
    58: "SASL_AUTHENTICATION_FAILED",
    59: "UNKNOWN_PRODUCER_ID",
    68: "NON_EMPTY_GROUP",
    69: "GROUP_ID_NOT_FOUND",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    81: "GROUP_MAX_SIZE_REACHED",
    82: "FENCED_INSTANCE_ID",
    87: "INVALID_RECORD",
    89: "THROTTLING_QUOTA_EXCEEDED",
    90: "PRODUCER_FENCED",
    100: "UNKNOWN_TOPIC_ID",
    110: "FENCED_MEMBER_EPOCH",
    111: "UNRELEASED_INSTANCE_ID",
    113: "STALE_MEMBER_EPOCH",
    120: "TRANSACTION_ABORTABLE",
    130: "STREAMS_INVALID_TOPOLOGY",
    131: "STREAMS_INVALID_TOPOLOGY_EPOCH",
    132: "STREAMS_TOPOLOGY_FENCED",
    134: "GROUP_DELETION_FAILED",
    135: "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
}

PUSH = (0, 14, 15, 16, 25, 30, 35, 42, 69, 135)
DESCRIBE = (0, 14, 15, 16, 24, 29, 30, 42, 69)
DELETION = (*DESCRIBE, 68, 134)  # 68: any group with members, streams or not; 134: since version 3
HEARTBEAT = (0, 14, 15, 16, 24, 25, 29, 30, 35, 42, 69, 81, 82, 110, 111, 113, 130, 131, 132)

# --- errors of a producer that rule a write out ---------------------------------------------------------------------
#
# All other errors leave it open. So do NOT_LEADER_OR_FOLLOWER and KAFKA_STORAGE_ERROR, which a leader also answers when
# it has appended the record and then lost the partition (DelayedProduce of Kafka), errors of a producer's state, which
# a client gives to all records that wait for an answer (Sender.maybeAbortBatches), and DUPLICATE_SEQUENCE_NUMBER: the
# record was written before.

# Code -> other spellings: the class in Java if it is not the name, the name and text of librdkafka, Kafka's own text.
REFUSALS: dict[int, tuple[str, ...]] = {
    2: (
        "CorruptRecordException",
        "INVALID_MSG",
        "Invalid message",
        "This message has failed its CRC checksum, exceeds the valid size, has a null key for a compacted topic, or is"
        " otherwise corrupt.",
        "This message has failed its CRC checksum, exceeds the valid size, or is otherwise corrupt",
    ),
    3: ("UNKNOWN_TOPIC_OR_PART", "This server does not host this topic-partition."),
    10: (
        "RecordTooLargeException",
        "MSG_SIZE_TOO_LARGE",
        "Message size too large",
        "MessageSizeTooLargeError",
        "The request included a message larger than the max message size the server will accept.",
    ),
    17: (
        "TOPIC_EXCEPTION",
        "Invalid topic",
        "The request attempted to perform an operation on an invalid topic.",
    ),
    18: (
        "RecordBatchTooLargeException",
        "Message batch larger than configured server segment size",
        "RecordListTooLargeError",
        "The request included message batch larger than the configured segment size on the server.",
    ),
    19: (
        "Not enough in-sync replicas",
        "Messages are rejected since there are fewer in-sync replicas than required.",
    ),
    21: (
        "Invalid required acks value",
        "Produce request specified an invalid value for required acks.",
    ),
    29: ("TopicAuthorizationException", "Not authorized to access topics"),
    31: ("ClusterAuthorizationException",),
    32: ("The timestamp of the message is out of acceptable range.",),
    33: ("The broker does not support the requested SASL mechanism.",),
    34: ("Request not valid in current SASL state", "Request is not valid given the current SASL state."),
    35: ("API version not supported", "The version of API is not supported."),
    42: ("Invalid request",),
    43: (
        "Message format on broker does not support request",
        "The message format version on the broker does not support the request.",
    ),
    44: ("Request parameters do not satisfy the configured policy.",),
    53: ("TransactionalIdAuthorizationException",),
    58: ("SaslAuthenticationException", "SASLAuthenticationError"),
    76: ("The requesting client does not support the compression type of given partition.",),
    87: (
        "Broker failed to validate record",
        "This record has failed the validation on broker and hence will be rejected.",
        "_INVALID_DIFFERENT_RECORD",
        "an invalid record in the same batch caused the failure of this message too",
        "Failed to append record because it was part of a batch which had one more more invalid records",
    ),
    100: ("This server does not host this topic ID.",),
}
# What a client itself refuses, before it sends the record.
REFUSED_BY_CLIENT = (
    *("SerializationException", "BufferExhaustedException", "TransactionAbortedException"),
    *("_KEY_SERIALIZATION", "Key serialization error", "_VALUE_SERIALIZATION", "Value serialization error"),
    *("_QUEUE_FULL", "Queue full", "_PURGE_QUEUE", "Purged in queue", "_TIMED_OUT_QUEUE", "Timed out in queue"),
    *("_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "_INVALID_ARG", "Invalid argument or configuration"),
    *("_UNSUPPORTED_FEATURE", "Required feature not supported by broker"),
)
# In these Java says TimeoutException: no partition was chosen, or the record found no room in the client's buffer.
NEVER_SENT = (
    "not present in metadata after|Failed to update metadata after"
    "|Failed to allocate (?:memory|[0-9]+ bytes) within the configured max blocking time"
)
# Names of what only wraps an error, as they are spelled here.
WRAPPERS = (
    *("", "CODE", "LOCAL", "BROKER", "KAFKA", "KAFKASERVER", "PROTOCOL", "EXECUTION", "COMPLETION", "NONRETRIABLE"),
    "NUMBEROFRETRIESEXCEEDED",
)
# Splits an error's text into names: `X: y`, `KafkaError{code=X,val=1,str="y"}`, `[Error 19] X: y`, `X(y)`.
BETWEEN_NAMES = r'[:={}()"\[\]]|,val|Error [0-9]+(?=\])'
PACKAGE = r"\A\s*(?:[A-Za-z_]\w*[.$])+(?=\w)"
NOT_SPELLED = r"[^A-Z0-9]"
AROUND = r"\AKAFKAJS|(?:EXCEPTION|ERROR)\z"


def spelled(name: str) -> str:
    """Return how names and texts of errors are compared: RecordTooLargeException and RECORD_TOO_LARGE are equal."""
    return re.sub(AROUND.replace(r"\z", r"\Z"), "", re.sub(NOT_SPELLED, "", re.sub(PACKAGE, "", name).upper()))


RULE_A_WRITE_OUT = tuple(
    sorted(
        {
            spelled(name)
            for name in (
                *REFUSED_BY_CLIENT,
                *(spelling for code, others in REFUSALS.items() for spelling in (NAMES[code], *others)),
            )
        }
    )
)
