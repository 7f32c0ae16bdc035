"""What a site tells if a table is damaged."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow
import pytest
from deltalake import write_deltalake

from pipelines.settings import Settings
from pipelines.settings.teams import Team
from pipelines.site import news, pages
from pipelines.site.content import Content
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.pages import Page, gathered, written


def damaged(settings: Settings, table: str) -> Content:
    """What is told after the log of a table was damaged, which the light names."""
    for log in Path(settings.warehouse, *table.split("."), "_delta_log").glob("*.json"):
        log.write_text("{")
    found = gathered(settings)
    assert found.light.colour == "red"
    assert any(reason.startswith(f"{table} cannot be read") for reason in found.light.reasons)
    return found


@pytest.mark.parametrize(
    ("table", "sections", "pages"),
    [
        ("gold.dlq_summary", ["timeline", "open"], {}),
        ("gold.dlq_incidents", ["open", "replay"], {"incidents.html": ["incidents-heading"]}),
        ("gold.trust_findings", ["findings"], {"delivery.html": ["findings"]}),
        ("gold.topology_current", ["topologies"], {}),
        ("gold.reconciliation", [], {"delivery.html": ["delivery"]}),
        ("gold.delivery_guarantees", [], {"delivery.html": ["guarantees"]}),
    ],
)
def test_what_a_damaged_table_would_tell_is_unknown_and_the_rest_is_told(
    settings: Settings, table: str, sections: list[str], pages: dict[str, list[str]]
) -> None:
    sites.filled(settings)
    settings = settings.model_copy(update={"teams": [Team(name="shop", topics=("*",))]})
    found = damaged(settings, table)
    are_incidents_known = table not in ("gold.dlq_incidents", "gold.dlq_summary")
    assert bool(found.incidents) is are_incidents_known
    made = written(settings)
    for page, names in ({"index.html": sections} | pages).items():
        for name in names:
            (section,) = re.findall(rf'<section[^>]*aria-labelledby="{name}".*?</section>', made[page], re.DOTALL)
            assert f"Unknown: {table} cannot be read." in section
            assert not re.search(r"None\.|Nothing", section)
    words = Page(made["index.html"]).words
    assert ("open incidents unknown" in words) is not are_incidents_known
    assert ("unknown open" in words) is not are_incidents_known
    assert ("findings unknown" in words) is (table == "gold.trust_findings")


def test_each_table_whose_damage_changes_what_is_told_is_named_on_each_page(settings: Settings) -> None:
    sites.filled(settings)
    plain = {"unreadable", "light", "fronts", "made_at"}
    whole = {name: part for name, part in gathered(settings).as_json().items() if name not in plain}
    tables = [log.parent for log in Path(settings.warehouse).glob("*/*/_delta_log")]
    assert len(tables) > 10
    for table in tables:
        name = f"{table.parent.name}.{table.name}"
        shutil.copytree(table, table.parent.with_name(f"kept-{name}"))
        for commit in (table / "_delta_log").glob("*.json"):
            commit.write_text("{")
        found = gathered(settings)
        parts = {part: value for part, value in found.as_json().items() if part not in plain}
        parts["pipeline"] = whole["pipeline"] if parts["pipeline"]["unreadable"] == {} else parts["pipeline"]
        named = name in found.unreadable.values()
        assert named or parts == whole, name
        if named:
            assert found.light.colour == "red"
            assert any(reason.startswith(f"{name} cannot be read") for reason in found.light.reasons)
            states = {table.name: table.state for table in found.pipeline.tables}
            assert states.get(name, "unreadable") == "unreadable"
            assert f"{name} cannot be read" in pages.quality_page(found.pipeline) or name not in states
            fronts = ("index.html", "team-")
            others = [
                page for page in pages.pages(found) if page.path.endswith(".html") and page.path != "quality.html"
            ]
            for page in others:
                assert page.path.startswith(fronts) or f"{name} cannot be read" in page.text(), page.path
        shutil.rmtree(table)
        table.parent.with_name(f"kept-{name}").rename(table)


def test_whether_tables_had_runs_is_unknown_if_their_runs_cannot_be_read(settings: Settings) -> None:
    sites.filled(settings)
    runs = Warehouse(settings).location("quality.stage_runs")
    write_deltalake(runs, pyarrow.table({"table": ["silver.dlq_records"]}))
    found = damaged(settings, "quality.stage_runs")
    assert {table.state for table in found.pipeline.tables} <= {"unknown", "behind"}
    text = pages.quality_page(found.pipeline)
    assert "No run has had input" not in text
    assert "Its runs are unknown" in text
    front = written(settings)["index.html"]
    assert not [words for words in ("Every table is current", "No run has filled a table yet") if words in front]
    assert "Unknown: quality.stage_runs cannot be read." in front


def test_a_table_that_was_damaged_for_a_while_is_no_news(settings: Settings) -> None:
    sites.filled(settings)
    directory = settings.reports()
    directory.mkdir()
    news.keep(directory, gathered(settings))
    whole = Path(settings.warehouse, "gold").rename(directory / "whole")
    shutil.copytree(whole, Path(settings.warehouse, "gold"))
    for table in ("gold.dlq_incidents", "gold.trust_findings"):
        found = damaged(settings, table)
        assert found.news is None
        news.keep(directory, found)
    shutil.rmtree(Path(settings.warehouse, "gold"))
    whole.rename(Path(settings.warehouse, "gold"))
    assert gathered(settings).news is None
