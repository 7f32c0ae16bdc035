"""The Python example with stand-ins for confluent-kafka's Message and KafkaError, as a delivery callback gets them."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.settings import ROOT

SPECIFICATION = importlib.util.spec_from_file_location(
    "acknowledgement_feed", ROOT / "examples" / "python" / "acknowledgement_feed.py"
)
assert SPECIFICATION
assert SPECIFICATION.loader
feeds = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(feeds)

LEFT_ALONE = -1001  # RD_KAFKA_OFFSET_INVALID


@dataclass
class Message:
    at: int = 7
    place: int = 2

    def topic(self) -> str:
        return 'or"ders\n'

    def partition(self) -> int:
        return self.place

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_795_228_907_986

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return b"0123456789"


class KafkaError:
    def name(self) -> str:
        return "_MSG_TIMED_OUT"

    def str(self) -> str:
        return "Local: Message timed out"


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(directory.iterdir()) for line in file.read_text().splitlines()]


def test_what_a_producer_is_told_lands_when_the_feed_is_closed(tmp_path: Path) -> None:
    landing = tmp_path / "acknowledgements"
    with feeds.AcknowledgementFeed(landing, client_id="checkout\u202e") as feed:
        feed.on_delivery([("traceparent", b"00-x"), ("n", None)])(None, Message())
        feed.on_delivery()(KafkaError(), Message(LEFT_ALONE, -1))
        feed.on_delivery()(None, Message(LEFT_ALONE))
        assert {file.suffix for file in landing.iterdir()} == {".tmp"}

    written, failed, unanswered = lines(landing)
    assert {file.suffix for file in landing.iterdir()} == {".jsonl"}
    assert written.pop("acknowledged_at") > 1_795_000_000_000 - 10**12
    assert written == {
        "topic": 'or"ders\n',
        "partition": 2,
        "offset": 7,
        "timestamp": 1_795_228_907_986,
        "serializedKeySize": -1,
        "serializedValueSize": 10,
        "exception": None,
        "headers": [{"key": "traceparent", "value": "MDAteA=="}, {"key": "n", "value": None}],
        "client_id": "checkout\u202e",
    }
    assert (failed["partition"], failed["offset"], failed["timestamp"]) == (-1, -1, -1)
    assert failed["exception"] == "_MSG_TIMED_OUT: Local: Message timed out"
    assert (unanswered["offset"], unanswered["exception"]) == (-1, None)


def test_a_long_feed_is_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "FILE_BYTES", 500)
    with feeds.AcknowledgementFeed(tmp_path, "c") as feed:
        for offset in range(20):
            feed.on_delivery()(None, Message(offset))

    assert [line["offset"] for line in lines(tmp_path)] == list(range(20))
    assert len(list(tmp_path.iterdir())) > 3
