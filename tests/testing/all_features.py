"""A person with a marker among others, in a warehouse in which every feature was used."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipelines.alerts import sender
from pipelines.replay import store
from pipelines.replay.actions import drawn
from pipelines.replay.choice import Choice
from pipelines.replay.judge import Options
from pipelines.settings import Settings, load
from pipelines.site import report
from pipelines.warehouse.actions import NOTE, act
from pipelines.warehouse.tables import Warehouse
from tests.testing import segments
from tests.testing.builders import BROKEN, kip_1191, kip_1317, land, line, run
from tests.testing.canaries import MARKER, with_marker
from tests.testing.deliveries import acknowledgement

WHO = MARKER.encode()
PAYLOAD = json.dumps({"customer": MARKER, "street": "Hillside 5"}).encode()
ENCODED = json.dumps({"blob": base64.b64encode(b'{"who": "' + WHO + b'"}').decode()}).encode()


def all_features(spark: SparkSession, settings: Settings) -> Path:
    """Fill an empty warehouse; return the directory that it and its landing directory are in."""
    place = Path(settings.warehouse).parent
    settings = of(place)
    canary(settings)
    run(spark, settings, feed=None)
    features(spark, settings)
    return place


def canary(settings: Settings) -> None:
    """Land a person among others: in keys, headers, payloads, messages, a line that nobody can read, a held topic."""
    kind = ("kind", b"order")

    def letter(offset: int, *more: tuple[str, bytes], message: str = "Offset rejected by client.", **given: Any) -> str:
        return line(offset, headers=[*kip_1191(offset=offset, message=message), *more, kind], **given)

    lines = [
        *(letter(number, key=f"k-{number % 3}".encode()) for number in range(12)),
        *(letter(number, ("street", b"Hillside 5"), key=WHO, value=PAYLOAD) for number in range(12, 16)),
        letter(16, value=ENCODED),
        letter(20, ("user", WHO)),
        letter(21, message=f"customer {MARKER} is unknown"),
        letter(22, message="customer 17 is unknown"),
        line(23, headers=kip_1317(original_offset="23"), key=WHO),
        letter(24, message=f"customer {MARKER} is unknown", key=WHO),
        line(25, headers=kip_1191(offset="x"), key=WHO, value=PAYLOAD),
        f'{{"no": "record", "of": "{MARKER}"}}',
    ]
    held = [line(number, topic="dlq.held", headers=BROKEN, key=WHO, value=PAYLOAD) for number in range(12)]
    land(settings, {"a.jsonl": lines, "b.jsonl": held})
    user = [{"key": "user", "value": base64.b64encode(WHO).decode()}]
    told = [acknowledgement(offset=number, seconds=number, headers=user) for number in range(10, 14)]
    refused = acknowledgement(offset=None, error=f"shop.Refused: {MARKER} is blocked", client_id=MARKER)
    land(settings, {"acks.jsonl": [*told, refused]}, feed="acknowledgements")
    log = settings.landing_of("segments") / "orders-0" / f"{0:020}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(segments.batch(0, 40) + segments.batch(40, 1, records=[segments.record(0, PAYLOAD, WHO)]))


def features(spark: SparkSession, settings: Settings) -> None:
    """Make a plan of a replay, a note about an incident, an alert that waits, pages and Data Docs."""
    warehouse = Warehouse(settings)
    draft = drawn(warehouse, Choice(where="dlq_offset BETWEEN 10 AND 21"), Options(), dry_run=True)
    assert len(draft.plan.records) > 4
    assert store.keep(warehouse, draft)
    (known,) = [row for row in scanned(settings, "gold.dlq_incidents") if MARKER in (row["error_pattern"] or "")]
    act(warehouse, known["incident_id"], NOTE, note=f"{MARKER} was told")
    run(spark, settings, feed="dlq")
    act(warehouse, known["incident_id"], NOTE, note=f"and {MARKER} answered")
    assert sender.send(settings).waiting
    report.build(warehouse)
    found = with_marker(places(settings))
    parts = (
        "/_actions/",
        "/_reports/",
        "/gold/replays/",
        "/gold/dlq_incidents/",
        "/quality/incident_actions/",
    )
    assert all(any(part in name for name in found) for part in parts), found


def of(place: Path) -> Settings:
    """The settings of a warehouse, with a route whose receiver does not answer."""
    route = {"name": "pager", "kind": "json", "url": "http://127.0.0.1:9/", "severity": "low"}
    return load(warehouse=str(place / "warehouse"), landing=str(place / "landing"), alerts={"route": [route]})


def places(settings: Settings) -> list[Path]:
    return [Path(settings.warehouse)]


def scanned(settings: Settings, table: str) -> list[dict[str, Any]]:
    batches = Warehouse(settings).opened_table(table).scan()
    return [row for batch in batches for row in batch.to_struct_array().to_pylist()]
