"""Delivery reports of confluent-kafka -> JSON lines in Afterlog's landing directory of acknowledgements."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

Headers = Iterable[tuple[str, bytes | None]]

FILE_BYTES = 8 << 20
FILE_SECONDS = 10.0


class AcknowledgementFeed:
    """Writes what a producer is told of each record; a file gets its name when it is complete.

    Give ``feed.on_delivery(headers)`` to ``produce`` and close the feed after the last ``flush``. Callbacks come from
    ``poll`` and ``flush``, in the thread that calls them; several threads may share a feed.
    """

    def __init__(self, directory: str | os.PathLike[str], client_id: str) -> None:
        """Write to a directory, which is made if it is not there."""
        self.directory = Path(directory)
        self.client_id = client_id
        self._lock = threading.Lock()
        self._file: TextIO | None = None
        self._scratch = Path()
        self._until = 0.0
        self._number = 0

    def on_delivery(self, headers: Headers | None = None) -> Callable[[Any, Any], None]:
        """Return the callback for one record: a delivery report does not repeat the record's headers everywhere."""
        sent = list(headers or [])

        def report(error: Any, message: Any) -> None:
            self._write(self._line(error, message, sent))

        return report

    def close(self) -> None:
        """Complete the file that is being written."""
        with self._lock:
            self._complete()

    def __enter__(self) -> AcknowledgementFeed:
        """Return the feed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the feed."""
        self.close()

    def _line(self, error: Any, message: Any, headers: list[tuple[str, bytes | None]]) -> str:
        timestamp_type, timestamp = message.timestamp()
        told = {
            "topic": message.topic(),
            "partition": _known(message.partition()),
            # librdkafka's mark for an unknown offset is -1001, Kafka's is -1
            "offset": -1 if error is not None else _known(message.offset()),
            "timestamp": -1 if error is not None or timestamp_type == 0 else timestamp,
            "serializedKeySize": _size(message.key()),
            "serializedValueSize": _size(message.value()),
            "exception": None if error is None else f"{error.name()}: {error.str()}",
            "headers": [{"key": name, "value": _base64(value)} for name, value in headers],
            "acknowledged_at": round(time.time() * 1000),
            "client_id": self.client_id,
        }
        return json.dumps(told, separators=(",", ":")) + "\n"

    def _write(self, line: str) -> None:
        with self._lock:
            if self._file is None:
                self._begin()
            assert self._file is not None
            self._file.write(line)
            if self._file.tell() >= FILE_BYTES or time.monotonic() >= self._until:
                self._complete()

    def _begin(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._scratch = self.directory / f"{os.getpid()}-{time.time_ns()}-{self._number:06}.jsonl.tmp"
        self._number += 1
        self._until = time.monotonic() + FILE_SECONDS
        self._file = self._scratch.open("w", encoding="ascii")

    def _complete(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._scratch.rename(self._scratch.with_suffix(""))


def _known(number: int | None) -> int:
    return -1 if number is None or number < 0 else number


def _size(content: bytes | str | None) -> int:
    return -1 if content is None else len(content.encode() if isinstance(content, str) else content)


def _base64(value: bytes | str | None) -> str | None:
    if value is None:
        return None
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()
