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
    offsets: dict[tuple[str, str, int], int] = {}
    for group, partitions in wanted.items():
        asked = ConsumerGroupTopicPartitions(
            group, [TopicPartition(*topic_partition) for topic_partition in sorted(partitions)]
        )
        for future in admin.client.list_consumer_group_offsets([asked]).values():
            try:
                answered = future.result(timeout=settings.kafka.timeout_seconds)
            except (KafkaException, TimeoutError):
                continue
            for topic_partition in answered.topic_partitions or ():
                if topic_partition.error is None and topic_partition.offset >= 0:
                    offsets[group, topic_partition.topic, topic_partition.partition] = topic_partition.offset
    return offsets
