"""A retry library as teams write one: what failed for the last time goes to a dead-letter topic, with its own headers.

``profiles/retry-library.toml`` tells Afterlog what they mean. The producer is confluent-kafka's, or what has its
``produce``; a message has ``topic()``, ``partition()``, ``offset()``, ``timestamp()``, ``key()`` and ``value()``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any


def consume(
    message: Any, handle: Callable[[Any], None], producer: Any, *, group: str, dead_letters: str, attempts: int = 3
) -> bool:
    """Handle a message, again after a failure; send it to the dead-letter topic after the last one.

    Returns whether it was handled.
    """
    for attempt in range(1, attempts + 1):
        try:
            handle(message)
        except Exception as error:
            if attempt == attempts:
                headers = _headers(message, group, attempt, error)
                producer.produce(dead_letters, key=message.key(), value=message.value(), headers=headers)
        else:
            return True
    return False


def _headers(message: Any, group: str, attempts: int, error: Exception) -> list[tuple[str, bytes]]:
    return [
        ("x-original-topic", message.topic().encode()),
        ("x-original-partition", struct.pack(">i", message.partition())),
        ("x-original-offset", struct.pack(">q", message.offset())),
        ("x-original-timestamp", struct.pack(">q", message.timestamp()[1])),
        ("x-consumer-group", group.encode()),
        ("x-retry-count", str(attempts).encode()),
        ("x-retry-policy", b"immediately"),
        ("x-exception-class", type(error).__qualname__.encode()),
        ("x-exception-message", str(error).encode()),
        ("x-failed-at", datetime.now(UTC).isoformat().encode()),
    ]
