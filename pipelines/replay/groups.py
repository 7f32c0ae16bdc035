"""Consumer groups of the cluster -> the offsets that they committed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from pipelines.replay import client
from pipelines.settings import Settings


def committed(settings: Settings, wanted: Mapping[str, Collection[tuple[str, int]]]) -> dict[tuple[str, str, int], int]:
    """Return the offsets that groups committed, by group, topic and partition.

    Left out are groups that do not exist, that commit no offsets (share groups) or that must not be described.

    Raises AfterlogError: the cluster does not answer.
    """
    admin = client.admin(settings)
    client.cluster_id(admin)  # a cluster that does not answer is one sentence
    found: dict[tuple[str, str, int], int] = {}
    for group, partitions in wanted.items():
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(*place) for place in sorted(partitions)])
        for future in admin.client.list_consumer_group_offsets([asked]).values():
            try:
                answered = future.result(timeout=settings.kafka.timeout_seconds)
            except (KafkaException, TimeoutError):
                continue
            for place in answered.topic_partitions or ():
                if place.error is None and place.offset >= 0:
                    found[group, place.topic, place.partition] = place.offset
    return found
