"""A dead letter as cloud pipelines write it: an envelope of JSON in the value holds the facts and the payload.

``profiles/cloud-pipeline.toml`` tells Afterlog where they stand.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any


def dead_letter(message: Any, error: Exception, *, step: str, attempts: int) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Return the value and the headers of the dead letter of a message that a step of the pipeline failed on."""
    envelope = {
        "pipeline": {"name": "clicks-to-warehouse", "steps": [step]},
        "source": {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()},
        "error": {"type": type(error).__qualname__, "message": str(error), "attempts": attempts},
        "failedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "payload": base64.b64encode(message.value()).decode(),
    }
    return json.dumps(envelope).encode(), [("pipeline-id", b"clicks-7"), ("content-type", b"application/json")]
