"""Builders for the feed ``delivery``: acknowledgements, producers, brokers' log; and its tables without Spark."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal

from arro3.core import Array, DataType, Field, Table, list_array, struct_array
from deltalake import write_deltalake

from expectations.contract import contract_of
from pipelines.settings import Settings
from pipelines.warehouse.tables import Warehouse, quarantine_contract
from tests.testing.requests import at, logged

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
SHARE_PARTITION = "(kafka.server.share.SharePartition)"


def millis(seconds: float = 0.0) -> int:
    """The time this many seconds after the test's beginning, in epoch milliseconds."""
    return round(at(seconds).timestamp() * 1000)


def acknowledgement(
    topic: str = "orders",
    partition: int | None = 0,
    offset: int | None = 0,
    seconds: float = 0.0,
    error: str | None = None,
    trace: str | None = TRACEPARENT,
    **more: Any,
) -> str:
    """What a producer interceptor reports about one record; ``more`` replaces or adds fields."""
    headers = [] if trace is None else [{"key": "traceparent", "value": base64.b64encode(trace.encode()).decode()}]
    told: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": -1 if error else millis(seconds),
        "serializedKeySize": -1 if error else 2,
        "serializedValueSize": -1 if error else 10,
        "exception": error,
        "headers": headers,
        "acknowledged_at": millis(seconds + 1),
        "client_id": "checkout-1",
    }
    return json.dumps(told | more, separators=(",", ":"))


def failure(topic: str = "orders", seconds: float = 0.0, **more: Any) -> str:
    """What a producer interceptor reports about a record that was not written."""
    error = "org.apache.kafka.common.errors.TimeoutException: Topic not present in metadata after 1500 ms."
    return acknowledgement(topic, **{"partition": -1, "offset": -1, "seconds": seconds, "error": error} | more)


def producer(client_id: str = "checkout-1", topic: str = "orders", mode: Any = "requested", **more: Any) -> str:
    """A statement about a producer whose brokers and topic support idempotence."""
    stated = {"client_id": client_id, "topic": topic, "client_version": "1.0.0", "enable_idempotence": mode}
    return json.dumps(stated | {"broker_version": "4.4.0", "message_format_version": "2"} | more)


def started(seconds: float, node: int = 1, component: str = "BrokerServer") -> str:
    """The line in which a component of a node tells that it has started."""
    said = {
        "BrokerServer": f"[BrokerServer id={node}] Transition from STARTING to STARTED (kafka.server.BrokerServer)",
        "KafkaRaftServer": f"[KafkaRaftServer nodeId={node}] Kafka Server started (kafka.server.KafkaRaftServer)",
        "KafkaServer": f"[KafkaServer id={node}] started (kafka.server.KafkaServer)",
        "GroupCoordinator": f"[GroupCoordinator id={node}] Startup complete. "
        "(org.apache.kafka.coordinator.group.GroupCoordinatorService)",
    }
    return logged(seconds, said[component], "INFO")


def archived(
    seconds: float, exception: str = "org.apache.kafka.common.errors.RecordTooLargeException: too large."
) -> list[str]:
    """The event for records that are archived without a dead letter, and its exception."""
    return [logged(seconds, f"Failed to write to DLQ, proceeding to ARCHIVED regardless. {SHARE_PARTITION}"), exception]


def not_enabled(seconds: float, group: str = "g", topic: str = "dlq.orders") -> list[str]:
    """The same event if the DLQ topic is not enabled: its exception names group and topic, but not the records."""
    text = f"DLQ is not enabled on configured DLQ topic for share group: {group}, topic: {topic}."
    return archived(
        seconds, f"org.apache.kafka.common.config.ConfigException: {text}\n\tat kafka.Some.method(Some.java:1)"
    )


def unproduced(
    seconds: float, group: str = "g", topic: str = "orders", partition: int = 0, first: int = 0, last: int = 5
) -> list[str]:
    """The event that names the records of a failed DLQ write."""
    parameter = (
        f"ShareGroupDLQRecordParameter[groupId={group}, topicIdPartition=1yZyCpwHTlKiUsmJv1k7xQ:{topic}-{partition}, "
        f"firstOffset={first}, lastOffset={last}, deliveryCount=Optional[1], "
        "cause=Optional[org.apache.kafka.server.share.dlq.ShareGroupDLQManager$ShareGroupDLQThrowable: "
        "Offset rejected by client.]]"
    )
    return [
        logged(seconds, f"Unable to produce ProduceRequestHandler(param: {parameter}"),
        f"dlqTopicData: TopicPartitionData[topicName=dlq.{topic}, numPartitions=Optional[1]]",
        ") to DLQ topic node 127.0.0.1:9092 (id: 1 rack: null isFenced: false) - null. (org.apache.kafka.X)",
    ]


# --- tables as Spark makes them, written without it ----------------------------------------------------------------


def store(settings: Settings, table: str, *rows: Mapping[str, Any]) -> None:
    """Append rows to a table with its contract's columns; a column that a row lacks is null.

    For a table of held rows it leaves out the bronze rows that they are made from.
    """
    layer, _, name = table.partition(".")
    contract = contract_of(f"silver.{name}" if layer in ("quarantine", "held") else table)
    contract = quarantine_contract(contract) if layer in ("quarantine", "held") else contract
    names = {"scope": "string"} if layer == "held" else {}
    names |= {column.name: column.type for column in contract.stored}
    for row in rows:
        assert set(row) <= set(names), set(row) - set(names)
    made = Table.from_pydict({name: _column([row.get(name) for row in rows], kind) for name, kind in names.items()})
    place = Warehouse(settings).location(table)
    mode: Literal["merge"] | None = "merge" if layer == "held" else None
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(place, made, mode="append", schema_mode=mode, configuration=feed)


_ARROW = {
    "string": DataType.string(),
    "int": DataType.int32(),
    "bigint": DataType.int64(),
    "boolean": DataType.bool(),
    "double": DataType.float64(),
    "binary": DataType.binary(),
    "date": DataType.date32(),
    "timestamp": DataType.timestamp("us", tz="UTC"),
}


def _column(values: Sequence[Any], kind: str) -> Array:
    if kind == "timestamp":
        micros = [None if value is None else int(value.timestamp() * 1_000_000) for value in values]
        return Array(micros, _ARROW["bigint"]).cast(_ARROW[kind])
    if kind.startswith("array<"):
        lists = [value or [] for value in values]
        offsets = [0, *accumulate(map(len, lists))]
        return list_array(Array(offsets, _ARROW["int"]), _column([item for many in lists for item in many], kind[6:-1]))
    if kind.startswith("struct<"):
        fields = dict(re.findall(r"(\w+): (\w+)", kind))
        columns = [_column([(value or {}).get(name) for value in values], type_) for name, type_ in fields.items()]
        return struct_array(
            columns, fields=[Field(name, _ARROW[type_], nullable=True) for name, type_ in fields.items()]
        )
    return Array(list(values), _ARROW[kind])
