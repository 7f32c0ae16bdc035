"""Pages of incidents that ended long ago: a sentence is left of them, and the front counts the others."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines import moments
from pipelines.settings import Settings
from pipelines.settings.retention import Retention
from pipelines.site import addresses, report
from pipelines.site.past import LATEST
from pipelines.warehouse import actions
from pipelines.warehouse.tables import Warehouse
from tests.testing.deliveries import store
from tests.testing.pages import Page, gathered
from tests.testing.sites import CANARY, NOW, hour, incident, incident_id

DAY = timedelta(days=1)
MORE = 5


def aged(settings: Settings, pages: str) -> Settings:
    return settings.model_copy(update={"retention": Retention(pages=pages)})


def ended(count: int, last_at: datetime, **more: Any) -> list[dict[str, Any]]:
    """Incidents whose topic was read long past their end; the first one ended last."""
    return [incident(number, last_at=last_at - number * timedelta(minutes=1), **more) for number in range(count)]


def stored(settings: Settings, *incidents: dict[str, Any]) -> None:
    rows = list(incidents)
    random.Random(7).shuffle(rows)
    store(settings, "gold.dlq_incidents", *rows)
    store(settings, "gold.dlq_summary", hour(NOW - timedelta(minutes=1)))


def names(numbers: range) -> set[str]:
    return {incident_id(number) for number in numbers}


def test_a_sentence_is_left_of_the_page_of_an_incident_that_ended_long_ago(settings: Settings, tmp_path: Path) -> None:
    forever = aged(settings, "forever")
    rows = ended(LATEST + MORE, NOW - 91 * DAY, error_pattern=CANARY)
    still_open = incident(LATEST + MORE, last_at=NOW - 400 * DAY, dlq_topics=[{"dlq_topic": "dlq.unread"}])
    stored(settings, *rows, still_open)
    report.write(tmp_path, gathered(forever))
    old = tmp_path / addresses.incident(incident_id(LATEST))
    assert CANARY in old.read_text(encoding="utf-8")

    content = gathered(settings)
    written = report.write(tmp_path, content)
    assert {case.incident_id for case in content.incidents} == names(range(LATEST)) | {incident_id(LATEST + MORE)}
    assert set(content.past.incidents) == names(range(LATEST, LATEST + MORE))
    assert {addresses.incident(name) for name in content.past.incidents} <= set(written)
    text = old.read_text(encoding="utf-8")
    assert CANARY not in text
    assert f"afterlog incident {incident_id(LATEST)}" in text
    assert "It ended more than 90 days ago" in text
    assert f"{MORE} more incidents ended more than 90 days ago" in (tmp_path / addresses.INCIDENTS).read_text("utf-8")
    assert "The latest incidents, the most urgent first" in (tmp_path / addresses.INCIDENTS).read_text("utf-8")
    assert f"The {LATEST + 1} latest incidents" in (tmp_path / addresses.FRONT).read_text("utf-8")
    links = {link for page in tmp_path.rglob("*.html") for link in Page(page.read_text("utf-8")).links}
    assert not [link for link in links if link.endswith(old.name)]
    assert not set(report.write(tmp_path, gathered(settings))) & {
        addresses.INCIDENTS,
        addresses.incident(incident_id(LATEST)),
    }

    report.write(tmp_path, gathered(forever))
    assert CANARY in old.read_text(encoding="utf-8"), "a longer age brings pages back"


@pytest.mark.parametrize(
    ("last_at", "pages", "count"),
    [
        pytest.param(NOW - 89 * DAY, "90 days", LATEST + MORE, id="younger"),
        pytest.param(NOW - 500 * DAY, "90 days", LATEST, id="few"),
        pytest.param(NOW - 500 * DAY, "forever", LATEST + MORE, id="forever"),
        pytest.param(NOW - 89 * DAY, "12 weeks", LATEST + MORE, id="another age"),
    ],
)
def test_which_pages_stay(settings: Settings, last_at: datetime, pages: str, count: int) -> None:
    stored(settings, *ended(count, last_at))
    content = gathered(aged(settings, pages))
    gone = MORE if pages == "12 weeks" else 0
    assert (len(content.incidents), len(content.past.incidents)) == (count - gone, gone)


def test_an_incident_about_which_somebody_did_something_lately_keeps_its_page(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(settings, *ended(LATEST + MORE, NOW - 91 * DAY))
    monkeypatch.setattr(moments, "now", lambda: NOW - DAY)
    actions.act(Warehouse(settings), incident_id(LATEST + MORE - 1), "note", note="It was the certificate.")
    assert set(gathered(settings).past.incidents) == names(range(LATEST - 1, LATEST + MORE - 1))


def test_the_age_changes_what_is_current(settings: Settings) -> None:
    states = {report._state(Warehouse(aged(settings, age)), (), ()) for age in ("90 days", "1 year")}
    assert len(states) == 2
