"""Metrics: they equal the tables, are bounded, hold no data of records, and rules and dashboard name only real ones."""

from __future__ import annotations

import json
import re
import shutil
import socket
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.commands.incidents.reading import Incidents
from pipelines.errors import EnvironmentLacking
from pipelines.metrics.exposition import Meter
from pipelines.metrics.families import MOST_SERIES, OTHER, bounded, families
from pipelines.run.follow import Cycle
from pipelines.settings import ROOT, Settings, load
from pipelines.settings.runs import Metrics
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.sites import CANARY, HOSTILE, NOW

EXAMPLES = ROOT / "examples" / "prometheus"


@pytest.fixture
def meter(settings: Settings, tmp_path: Path) -> Meter:
    sites.filled(settings)
    file = tmp_path / "collector" / "afterlog.prom"
    return Meter(settings.model_copy(update={"metrics": Metrics(file=str(file))}))


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What Prometheus' own parser reads."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_file_says_what_the_tables_say(meter: Meter) -> None:
    assert meter.refresh() == ()
    text = Path(meter.settings.metrics.file or "").read_text()
    found = samples(text)
    assert CANARY not in text
    ours = ("cluster", "default")
    assert all(found["afterlog_collected", (ours, ("part", part))] == 1 for part in ("pipeline", "rows", "incidents"))
    known = Incidents(meter.warehouse, NOW.replace(year=2027))
    opened = Counter(incident.row["severity"] for incident in known.known if incident.state.is_open)
    for level in ("critical", "high", "medium", "low"):
        assert found["afterlog_open_incidents", (ours, ("severity", level))] == opened[level]
    hours = jvmless.rows(meter.warehouse, "gold.dlq_summary", {"cluster": "default"})
    letters = Counter((row["consumer_group"], row["disposition"]) for row in hours)
    for group, disposition in letters:
        expected = sum(
            row["record_count"] for row in hours if (row["consumer_group"], row["disposition"]) == (group, disposition)
        )
        labels = (ours, ("consumer_group", group or ""), ("disposition", disposition or ""), ("owner", group or ""))
        assert found["afterlog_dead_letters", labels] == expected
    assert found["afterlog_lost_messages", (ours,)] == 3
    rule = (ours, ("rule", "original_offset.decimal_int64"), ("table", "silver.dlq_records"))
    assert found["afterlog_quarantined_rows", rule] == 1
    assert any(HOSTILE[5] in dict(labels).values() for _, labels in found)  # as it is: the format escapes it


def test_what_is_not_known_has_no_value(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    (lost,) = (family for family in families(Warehouse(settings), NOW) if family.name == "afterlog_lost_messages")
    assert lost.samples == []


def test_series_are_bounded() -> None:
    counts = Counter({(f"group {number}", "x"): number for number in range(1, 300)})
    found = dict(bounded(counts))
    assert len(found) == MOST_SERIES + 1
    assert sum(found.values()) == counts.total()
    assert found[OTHER, OTHER] == sum(range(1, 200))


def test_a_name_that_is_that_of_the_rest_and_names_that_look_the_same_make_no_series_twice() -> None:
    counts = Counter({(f"topic {number}",): 1_000 - number for number in range(MOST_SERIES + 5)})
    counts += Counter({(OTHER,): 5_000, ("?",): 7_000, ("\ud800",): 6_000})
    found = list(bounded(counts))
    assert len(dict(found)) == len(found) == MOST_SERIES - 1
    assert dict(found)["?",] == 13_000
    assert dict(found)[OTHER,] == 5_000 + sum(1_000 - number for number in range(MOST_SERIES - 3, MOST_SERIES + 5))
    assert sum(count for _, count in found) == counts.total()


def test_series_of_two_clusters_are_never_the_same(meter: Meter, tmp_path: Path) -> None:
    texts = []
    for name in ("default", 'a "quoted"\u2028\n\\ cluster'):
        file = tmp_path / f"{len(texts)}.prom"
        its = meter.settings.model_copy(update={"cluster": name, "metrics": Metrics(file=str(file))})
        item = Meter(its)
        item.count(Cycle("", "", "idle", {}, None), [])  # type: ignore[arg-type]
        assert (item.refresh(), item.refresh()) == ((), ())
        found = samples(file.read_text())
        assert {dict(labels)["cluster"] for _, labels in found} == {name}
        texts.append(found)
    assert not texts[0].keys() & texts[1].keys()


def test_the_file_of_another_cluster_is_not_replaced(meter: Meter) -> None:
    file = Path(meter.settings.metrics.file or "")
    assert meter.refresh() == ()
    ours = file.read_text()
    second = Meter(meter.settings.model_copy(update={"cluster": "second"}))
    (sentence,) = second.refresh()
    assert "has the metrics of cluster 'default': set [metrics] file to one of its own for cluster 'second'" in sentence
    assert file.read_text() == ours
    for old in ("", "\x00", 'afterlog_build_info{version="1"} 1\n', "afterlog_build_info{"):
        file.write_text(old)
        assert second.refresh() == ()
        assert 'cluster="second"' in file.read_text()


def test_a_damaged_table_hides_no_other_metrics(meter: Meter) -> None:
    shutil.rmtree(Path(meter.settings.warehouse, "gold", "reconciliation", "_delta_log"))
    for file in Path(meter.settings.warehouse, "gold", "dlq_incidents").glob("*.parquet"):
        file.write_bytes(b"")
    found = {family.name: family for family in families(meter.warehouse)}
    assert {sample.labels["part"]: sample.value for sample in found["afterlog_collected"].samples}["incidents"] == 0
    assert found["afterlog_quarantined_rows"].samples


def test_a_scrape_shows_cycles_and_reads_nothing(meter: Meter) -> None:
    with meter.served("127.0.0.1", 0) as port:

        def scraped() -> dict[Any, float]:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return samples(answer.read().decode())

        assert scraped() == {}
        meter.refresh()
        for result in ("idle", "read", "idle"):
            meter.count(Cycle("", "", result, {}, None), [])  # type: ignore[arg-type]
        shutil.rmtree(meter.settings.warehouse)
        found = scraped()
        ours = ("cluster", "default")
        assert found["afterlog_cycles_total", (ours, ("result", "idle"))] == 2
        assert found["afterlog_lost_messages", (ours,)] == 3
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(EnvironmentLacking, match="name another"):
        meter.served("127.0.0.1", taken.getsockname()[1]).__enter__()


def test_a_file_that_cannot_be_written_is_said(settings: Settings, tmp_path: Path) -> None:
    sites.filled(settings)
    (tmp_path / "file").write_text("")
    meter = Meter(settings.model_copy(update={"metrics": Metrics(file=str(tmp_path / "file" / "a.prom"))}))
    (sentence,) = meter.refresh()
    assert "see [metrics] file" in sentence


def test_rules_and_dashboard_name_metrics_that_there_are(meter: Meter) -> None:
    meter.refresh()
    meter.count(Cycle("", "", "idle", {}, None), [])
    there = set(re.findall(r"^# TYPE (\S+)", meter.text(), re.MULTILINE))
    for file in ("afterlog.rules.yml", "afterlog-dashboard.json"):
        text = (EXAMPLES / file).read_text()
        named = set(re.findall(r"\bafterlog_\w+", text))
        assert len(named) >= 8
        assert named <= there, file
    json.loads((EXAMPLES / "afterlog-dashboard.json").read_text())
    table = (ROOT / "docs" / "operate.md").read_text().partition("## Metrics")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    shown = {f"afterlog_{name}" for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert shown == there


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--metrics-port", "1"], "--metrics-port needs --follow; a single run writes the file of [metrics]."),
        (["--metrics-host", "::1"], "--metrics-host needs --metrics-port."),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    places = ["--warehouse", str(tmp_path), "--landing", str(tmp_path)]
    assert str(CliRunner().invoke(app, ["run", *arguments, *places]).exception) == sentence


def test_the_file_is_one_that_the_collector_reads() -> None:
    with pytest.raises(Exception, match=r"metrics\.file"):
        load(metrics={"file": "a.txt"})


def test_a_warehouse_that_only_spark_opens_is_refused_in_a_sentence() -> None:
    with pytest.raises(Exception, match=r"^Only Spark opens file:///nowhere, and metrics are read without it"):
        Meter(load(warehouse="file:///nowhere"))
