"""A real Prometheus scrapes a process that follows, its rules see an incident, and a collector gets the same."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.metrics.exposition import Meter
from pipelines.settings import ROOT, load
from pipelines.settings.runs import Metrics
from tests.testing import collector, sites
from tests.testing.builders import kip_1191, land, line, warehouse_of
from tests.testing.deliveries import store
from tests.testing.following import Following
from tests.testing.following import found as rows_of
from tests.testing.receiver import Receiver

EXAMPLES = ROOT / "examples" / "prometheus"
RULES = "afterlog.rules.yml"
READ = (("cluster", "default"), ("result", "read"))

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="there is no Prometheus: apt-get install prometheus",
)


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.thorough)], ids=["one stage", "whole feed"])
def is_whole(request: pytest.FixtureRequest) -> bool:
    """Whether a process runs the whole feed, or only its first stage beside tables that others fill."""
    return bool(request.param)


@pytest.fixture
def server() -> Iterator[Receiver]:
    with collector.collecting() as found:
        yield found


@pytest.fixture
def following(empty_warehouse: Path, tmp_path: Path, is_whole: bool, server: Receiver) -> Iterator[Following]:
    settings = warehouse_of(empty_warehouse, tmp_path)
    only = () if is_whole else ("--only", "bronze.dlq_records")
    file = tmp_path / "afterlog.prom"
    environment = {"AFTERLOG_METRICS__FILE": str(file), **collector.variables(server)}
    process = Following(settings, tmp_path / "log", *only, "--metrics-port", "0", **environment)
    yield process
    process.process.kill()
    process.process.wait(30)


def until(holds: Callable[[], Any], what: Callable[[], Any], seconds: float = 180) -> Any:
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, what()
        time.sleep(0.5)
    return found


def test_prometheus_scrapes_a_process_that_follows_and_its_rules_see_an_incident(
    following: Following, is_whole: bool, tmp_path: Path, server: Receiver
) -> None:
    def log() -> str:
        return following.log.read_text()

    found = until(lambda: re.search(r"Metrics are at http://127\.0\.0\.1:(\d+)/metrics", log()), log)
    subprocess.run(["promtool", "check", "rules", str(EXAMPLES / RULES)], check=True, capture_output=True)
    shutil.copy(EXAMPLES / RULES, tmp_path)
    scraping = (EXAMPLES / "prometheus.yml").read_text()
    scraping = scraping.replace("127.0.0.1:9464", f"127.0.0.1:{found[1]}").replace("15s", "1s")
    (tmp_path / "prometheus.yml").write_text(f"global: {{evaluation_interval: 1s}}\n{scraping}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    with (
        (tmp_path / "prometheus.log").open("wb") as told,
        subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=told, stderr=told) as prometheus,
    ):

        def ask(path: str) -> Any:
            try:
                with urllib.request.urlopen(f"http://{address}/api/v1/{path}", timeout=10) as answer:
                    return json.load(answer)["data"]
            except (urllib.error.URLError, ConnectionError):
                return None

        def states() -> dict[str, str]:
            groups = (ask("rules") or {}).get("groups") or []
            return {rule["name"]: rule["state"] for group in groups for rule in group["rules"]}

        def is_up() -> bool:
            return [row["health"] for row in (ask("targets") or {}).get("activeTargets", ())] == ["up"]

        def both() -> tuple[str, str]:
            return (tmp_path / "prometheus.log").read_text()[-3000:], log()

        try:
            until(is_up, both)
            until(lambda: states().get("AfterlogIncident") == "inactive", both)
            if not is_whole:
                store(following.settings, "gold.dlq_incidents", sites.incident(0))
                store(following.settings, "gold.dlq_summary", sites.hour(sites.NOW, 60))
            wide = [line(number, headers=kip_1191(offset=str(number))) for number in range(100, 160)]
            land(following.settings, {"a.jsonl": wide})
            until(lambda: states().get("AfterlogIncident") in ("pending", "firing"), both)
            (opened,) = ask("query?query=sum(afterlog_open_incidents)")["result"]
            assert opened["value"][1] == "1"
            (letters,) = ask("query?query=sum by (cluster) (afterlog_dead_letters)".replace(" ", "%20"))["result"]
            assert letters["metric"] == {"cluster": "default"}
            assert letters["value"][1] == "60"
            assert states()["AfterlogLostMessages"] == "inactive"
        finally:
            prometheus.terminate()
            prometheus.wait(30)
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=(tmp_path / "afterlog.prom").read_bytes(), capture_output=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    rows = {(row["run_id"], row["table"]) for row in rows_of(following.settings, "quality.stage_runs")}
    until(lambda: len(collector.spans(server)) > len(rows), log)
    roots = {span.span_id: span.attributes["afterlog.run_id"] for span in collector.spans(server) if not span.parent_id}
    assert {(roots[span.parent_id], span.name) for span in collector.spans(server) if span.parent_id} == rows
    assert collector.samples(server)["afterlog_cycles_total", READ] >= 1
    assert following.stop()[0] == 0


def test_the_first_gap_of_a_topic_and_the_next_one_are_alerts_for_an_hour(tmp_path: Path) -> None:
    labels = {"cluster": "default", "topic": "dlq.orders"}
    told = "Records of dlq.orders of default were gone before they were read"
    alert = {"exp_labels": {**labels, "severity": "critical"}, "exp_annotations": {"summary": told}}
    values = f"{'_ ' * 90}{'7 ' * 120}{'9 ' * 120}"
    times = {"80m": [], "92m": [alert], "148m": [alert], "160m": [], "212m": [alert], "280m": []}
    test = {
        "rule_files": [str(EXAMPLES / RULES)],
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": 'afterlog_gap_offsets{cluster="default", topic="dlq.orders"}', "values": values.strip()},
                    {"series": 'afterlog_gap_offsets{cluster="default", topic="old"}', "values": "5x400"},
                ],
                "alert_rule_test": [
                    {"eval_time": at, "alertname": "AfterlogGap", "exp_alerts": alerts} for at, alerts in times.items()
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(json.dumps(test))
    ran = subprocess.run(["promtool", "test", "rules", str(tmp_path / "test.yml")], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.skipif(shutil.which("prometheus-node-exporter") is None, reason="there is no node exporter")
def test_a_node_exporter_shows_the_files_of_two_clusters(tmp_path: Path) -> None:
    settings = sites.filled(load(warehouse=str(tmp_path / "warehouse"), landing=str(tmp_path / "landing")))
    for name in ("default", "second"):
        item = {"cluster": name, "metrics": Metrics(file=str(tmp_path / "files" / f"{name}.prom"))}
        assert Meter(settings.model_copy(update=item)).refresh() == ()
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile"]
    command += [f"--collector.textfile.directory={tmp_path}/files", f"--web.listen-address={address}"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as exporter,
    ):

        def scraped() -> str | None:
            try:
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
                    return str(answer.read().decode())
            except (urllib.error.URLError, ConnectionError):
                return None

        try:
            text = until(scraped, lambda: (tmp_path / "log").read_text(), 30)
        finally:
            exporter.terminate()
            exporter.wait(30)
    assert "node_textfile_scrape_error 0" in text, (tmp_path / "log").read_text()
    clusters = re.findall(r'^afterlog_build_info{cluster="(\w+)"', text, re.MULTILINE)
    assert sorted(clusters) == ["default", "second"], (tmp_path / "log").read_text()
    assert "was collected before" not in (tmp_path / "log").read_text()
