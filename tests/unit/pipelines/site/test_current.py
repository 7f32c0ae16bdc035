"""When a site is built again, and what changed against the one before."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.commands.findings import findings_of
from pipelines.commands.incidents.incident import Incident
from pipelines.errors import UsageError
from pipelines.incidents.state import state_of
from pipelines.settings import PrivacyKey, SchemaFile, Settings
from pipelines.settings.runs import Report
from pipelines.site import addresses, news, report
from pipelines.site.content import Content
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store
from tests.testing.pages import Page, gathered, with_masks, written
from tests.testing.sites import HOUR, NOW, hour, incident, incident_id


def test_a_key_of_hashes_and_a_schema_file_change_what_is_current(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.filled(settings)
    schema = tmp_path / "order.avsc"
    more = {
        "privacy_key": PrivacyKey(hash_key_env="DLQ_HASH_KEY"),
        "schemas": (SchemaFile(topic="x", file=str(schema)),),
    }
    settings = with_masks(settings, {"key": True, "do": "hash"}).model_copy(update=more)
    warehouse = Warehouse(settings)

    def built() -> str:
        """Build the site if it is not current, and return the pages of incidents."""
        if report.current(warehouse, (), ()) is None:
            report.build(warehouse, (), (), gathered(settings))
        assert report.current(warehouse, (), ()) is not None
        return "".join(file.read_text() for file in sorted((settings.reports() / "incidents").iterdir()))

    monkeypatch.delenv("DLQ_HASH_KEY", raising=False)
    assert "the environment variable DLQ_HASH_KEY is not set" in built()
    shown = []
    for key in ("first-key-of-hashes", "second-key-of-hashes"):
        monkeypatch.setenv("DLQ_HASH_KEY", key)
        shown += re.findall(r"&lt;hashed [0-9a-f]{12}", built())[:1]
        assert key not in (settings.reports() / report.SHOWN).read_text()
    assert len(set(shown)) == 2
    schema.write_text('"string"')
    assert report.current(warehouse, (), ()) is None


def test_a_site_that_is_old_is_built_again_as_numbers_of_the_last_hour_change(settings: Settings) -> None:
    sites.filled(settings)
    warehouse = Warehouse(settings)
    report.build(warehouse, (), (), gathered(settings))
    assert report.current(warehouse, (), ()) is not None
    noted = settings.reports() / report.SHOWN
    os.utime(noted, (0, noted.stat().st_mtime - report.FRESH_SECONDS - 1))
    assert report.current(warehouse, (), ()) is None


def test_data_docs_are_rendered_again_only_with_new_results(settings: Settings) -> None:
    warehouse, made = Warehouse(settings), settings.reports()

    def built(run: str | None = None) -> int:
        """Build the site after a run's gate; return when Data Docs were rendered."""
        if run is not None:
            from expectations.suite import gate_facts

            gate_facts({"grain.duplicates": 0}, "gold.dlq_summary", run_id=run, store=made / "gx")
        report.build(warehouse)
        return (made / report.DATA_DOCS / "index.html").stat().st_mtime_ns

    first = built("run-1")
    assert built() == first
    second = built("run-2")
    assert second > first
    assert [path.name for path in (made / report.DATA_DOCS / "validations").rglob("run-2")] == ["run-2"]
    (made / report.DOCUMENTED).unlink()
    assert built() > second


def test_a_directory_has_the_pages_of_one_cluster(settings: Settings, tmp_path: Path) -> None:
    second = settings.model_copy(update={"cluster": "second\u202e"})
    store(settings, "gold.dlq_summary", *(hour(NOW, cluster=place.cluster) for place in (settings, second)))
    page = report.build(Warehouse(settings)).parent / addresses.group("orders-workers")
    before = page.read_text()
    with pytest.raises(UsageError, match=r"has the pages of cluster 'default'.*for cluster 'second\\u202e'"):
        report.build(Warehouse(second))
    assert page.read_text() == before
    own = second.model_copy(update={"report": Report(directory=str(tmp_path / "second"))})
    assert report.build(Warehouse(own)) == report.build(Warehouse(own)) == tmp_path / "second" / "index.html"
    report.build(Warehouse(settings))


def test_the_front_tells_what_changed_against_the_report_before(settings: Settings) -> None:
    sites.filled(settings)
    directory = settings.reports()
    directory.mkdir()

    def built() -> Content:
        """What a report tells; the next one compares with it."""
        content = gathered(settings)
        news.keep(directory, content)
        return content

    first, second = built(), built()
    assert (first.news, second.news) == (None, None)
    assert 'id="news"' not in written(settings)["index.html"]
    opened, ended = incident(70, original_topic="fresh"), incident(0, last_at=NOW - timedelta(days=9))
    Path(settings.warehouse, "gold", "dlq_incidents").rename(directory / "gone")
    store(settings, "gold.dlq_incidents", opened, incident(1, severity="critical"), incident(2, verdict="FLOOD"))
    content = built()
    assert content.news is not None
    said = {change.incident_id: change for change in content.news.changes if change.incident_id}
    assert said[incident_id(70)].words.startswith("opened: poison pill fresh:4:58")
    assert content.news.since == second.made_at
    assert said[incident_id(70)].is_bad
    assert set(said) >= {incident_id(1)}
    assert built().news == content.news  # until something else changes
    words = Page(written(settings)["index.html"]).words
    assert "What changed last" in words
    assert "opened: poison pill fresh:4:58" in words
    store(settings, "gold.dlq_incidents", ended)
    assert built().news == content.news  # an old incident that is known only now is no news
    (directory / news.FILE).write_text("[")
    assert gathered(settings).news is None


def test_a_finding_that_goes_on_is_not_over_though_its_count_changed(settings: Settings, tmp_path: Path) -> None:
    def finding(*topics: str) -> dict[str, Any]:
        quiet = {"last_at": NOW - 9 * HOUR, "pause_seconds": 1_800, "predecessor_id": None}
        rows = [
            incident(index, **quiet, dlq_topics=[{"dlq_topic": name, "last_at": 0}])
            for index, name in enumerate(topics)
        ]
        opened = [Incident(row, state_of(row, {}, NOW), NOW) for row in rows]
        (found,) = findings_of(Warehouse(settings), (), NOW, opened)
        return found

    news.keep(tmp_path, replace(gathered(settings), findings=(finding("a", "b", "c"),)))
    for topics in (("a", "b", "c"), ("a", "b"), ("a",)):
        assert news.of_report(tmp_path, (), [finding(*topics)]) is None
    over = news.of_report(tmp_path, (), [])
    assert over is not None
    assert [change.words for change in over.changes] == ["the finding not read on is over"]
