"""The words of a header's name, and the fields that they suggest."""

from __future__ import annotations

import pytest

from pipelines.columns.header_words import senses, strange, words

FIELDS = {
    "failed-message-topic": "original_topic",
    "dlq-src-partition": "original_partition",
    "OffsetOfSource": "original_offset",
    "dead-letter-topic": "original_topic",
    "ACME_INPUT_QUEUE": "original_topic",
    "dlq_sourcetopic": "original_topic",
    "srcPart": "original_partition",
    "err_class": "exception_class",
    "dead-letter-exception-class-name": "exception_class",
    "x-exception-fqcn": "exception_class",
    "dead-letter-cause-class-name": "exception_cause_class",
    "dead-letter-reason": "error_message",
    "x-acme-error": "error_message",
    "retry.error.details": "error_message",
    "dlq_stacktrace": "exception_stacktrace",
    "exceptionStackTrace": "exception_stacktrace",
    "retryAttempts": "delivery_count",
    "x-retry-count": "delivery_count",
    "deliveryAttempt": "delivery_count",
    "num-retries": "delivery_count",
    "deadLetterTime": "routed_at",
    "x-failed-at": "routed_at",
    "last-attempt-at": "routed_at",
    "x-original-timestamp": "original_timestamp",
    "x-original-timestamp-type": "original_timestamp_type",
    "groupId": "consumer_group",
    "com.acme.dlq.consumer.group": "consumer_group",
    "KAFKA.CONNECTOR": "connector_name",
    "task-id": "task_id",
}
NOBODYS = (
    *("traceparent", "tracestate", "b3", "content-type", "__TypeId__", "x-request-id", "x-timeout-ms", "ce_type"),
    *("event-type", "message-id", "retry-after", "x-next-offset", "max-attempts", "error-code", "reply-topic", "key"),
    *("expires-at", "partition-key", "kafka_replyTopic", "schema-version"),
)


@pytest.mark.parametrize(("name", "field"), FIELDS.items())
def test_the_word_that_stands_last_tells_the_field(name: str, field: str) -> None:
    assert senses(name)[0].field == field


@pytest.mark.parametrize("name", NOBODYS)
def test_other_names_tell_none(name: str) -> None:
    assert senses(name) == []


def test_a_name_is_split_at_capitals_separators_and_known_words() -> None:
    assert words("DLQSourceTopic") == ("dlq", "source", "topic")
    assert words("acmeoriginaltopic") == ("acme", "original", "topic")
    assert words("x.acme_failed-AT2") == ("x", "acme", "failed", "at", "2")
    assert strange("x-acme-dlq-user-topic") == {"acme", "user"}


def test_where_a_record_came_from_is_less_doubtful_than_where_it_may_go() -> None:
    doubts = [senses(name)[0].doubt for name in ("x-source-topic", "x-topic", "x-dlq-topic")]
    assert doubts == sorted(set(doubts))
