"""Settings whose patterns match nothing that landed are told by the doctor, with the near miss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.alerts import listing
from pipelines.cli import app
from pipelines.commands import known
from pipelines.replay import checks
from pipelines.settings import Settings, load
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store

ROUTE = {"name": "on-call", "url": "http://127.0.0.1:9/"}


def of(directory: Path, **more: Any) -> Settings:
    """Return settings of a warehouse with a dead letter of orders-workers, and one in quarantine."""
    (directory / "landing").mkdir()
    settings = load(warehouse=str(directory / "warehouse"), landing=str(directory / "landing"), **more)
    letter = sites.letter(disposition="CLIENT_REJECTED", exception_class="a.TimeoutException", error_message="late")
    store(settings, "silver.dlq_records", letter)
    store(settings, "quarantine.dlq_records", sites.letter(6, dlq_topic="dlq.refused"))
    store(settings, "gold.trust_findings", {"cluster": "default", "kind": "X", "topic": "checkout"})
    return settings


def said(settings: Settings) -> list[tuple[str, str]]:
    found = [*known.unmatched(Warehouse(settings)), *listing.unmatched(Warehouse(settings))]
    return [(finding, remedy) for finding, remedy in found]


def test_a_required_profile_of_no_topic_is_told(tmp_path: Path) -> None:
    require = [{"topic": name, "profile": "kip-1191"} for name in ("dlq.*", "dlq.refused", "dlq.order")]
    ((finding, remedy),) = said(of(tmp_path, dlq={"require": require}))
    assert finding == "[[dlq.require]] 3 matches nothing that landed: no DLQ topic fits 'dlq.order'."
    assert remedy == "Correct it, unless that is still to come. Did you mean 'dlq.orders'?"


def test_a_mask_of_no_source_topic_is_told(tmp_path: Path) -> None:
    masks = [{"topic": name, "key": True, "do": "drop"} for name in ("*", "orders", "order", "x\x1b[31m")]
    findings = [finding for finding, _ in said(of(tmp_path, privacy=masks))]
    assert [finding.partition(" matches")[0] for finding in findings] == ["[[privacy]] 3", "[[privacy]] 4"]
    assert "\x1b" not in "".join(findings)


def test_a_mask_of_no_header_is_told(tmp_path: Path) -> None:
    masks = [{"header": name, "do": "drop"} for name in ("trace*", "__dlq.errors.message", "user-emial")]
    settings = of(tmp_path, privacy=masks)
    headers = [{"key": "traceparent", "value": b"t"}, {"key": "user-email", "value": b"e"}]
    store(settings, "silver.dlq_records", sites.letter(7, user_headers=headers))
    ((finding, remedy),) = said(settings)
    assert finding == "[[privacy]] 3 matches nothing that landed: no header fits 'user-emial'."
    assert "Did you mean 'user-email'?" in remedy


@pytest.mark.parametrize(
    ("route", "lacks"),
    [
        pytest.param({}, None, id="all"),
        pytest.param({"group": "orders-*", "topic": "orders"}, None, id="both match"),
        pytest.param({"topic": "dlq.orders"}, None, id="a DLQ topic"),
        pytest.param({"topic": "checkout"}, None, id="the topic of a finding"),
        pytest.param({"group": "order-workers"}, "no owner fits 'order-workers'", id="no owner"),
        pytest.param(
            {"group": "orders-*", "topic": "checkout"}, "no topic of its owners fits 'checkout'", id="not both"
        ),
    ],
)
def test_a_route_that_gets_nothing_is_told(route: dict[str, str], lacks: str | None, tmp_path: Path) -> None:
    found = said(of(tmp_path, alerts={"route": [ROUTE | route]}))
    assert [finding.endswith(f": {lacks}.") for finding, _ in found] == ([True] if lacks else [])


@pytest.mark.parametrize(
    ("pattern", "is_told"),
    [
        ('error = "*Timeout*"', False),
        ('error = "late"', False),
        ('group = "orders-*"\ndisposition = "CLIENT_REJECTED"\nverdict = "SYSTEMIC"', False),
        ('group = "orders"', True),
        ('error = "*Timeout*"\ntopic = "payments"', True),
    ],
)
def test_a_rule_that_matches_no_dead_letter_is_told(pattern: str, is_told: bool, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(f'[[rule]]\nname = "the rule"\n{pattern}\nthen = "HOLD"\n', encoding="utf-8")
    told = checks.checks(of(tmp_path, replay={"rules": str(file)}))
    assert [item.finding for item in told] == (
        ["Rule 'the rule' of [replay] rules matches no dead letter that landed."] if is_told else []
    )


def test_nothing_is_said_before_something_landed(tmp_path: Path) -> None:
    require = {"require": [{"topic": "x", "profile": "kip-1191"}]}
    settings = load(
        warehouse=str(tmp_path / "w"), landing=str(tmp_path), dlq=require, alerts={"route": [ROUTE | {"group": "x"}]}
    )
    assert said(settings) == []


def test_the_doctor_tells_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = of(tmp_path)
    monkeypatch.setenv("AFTERLOG_DLQ__REQUIRE", '[{"topic": "x", "profile": "kip-1191"}]')
    monkeypatch.setenv("AFTERLOG_PRIVACY", '[{"topic": "y", "key": true, "do": "drop"}]')
    monkeypatch.setenv("AFTERLOG_ALERTS", '{"route": [{"name": "r", "url": "http://127.0.0.1:9/", "group": "z"}]}')
    rules_file = tmp_path / "rules.toml"
    rules_file.write_text('[[rule]]\nname = "r"\ngroup = "u"\nthen = "HOLD"\n', encoding="utf-8")
    monkeypatch.setenv("AFTERLOG_REPLAY__RULES", str(rules_file))
    where = ["--warehouse", settings.warehouse, "--landing", settings.landing]
    text = " ".join(CliRunner().invoke(app, ["doctor", *where, "--format", "json"]).output.split())
    for part in ("[[dlq.require]] 1", "[[privacy]] 1", "[[alerts.route]] r", "Rule 'r' of [replay] rules"):
        assert f"{part} matches no" in text


def test_the_doctor_works_before_the_first_run(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    where = ["--warehouse", str(tmp_path / "warehouse"), "--landing", str(tmp_path / "landing")]
    result = CliRunner().invoke(app, ["doctor", *where, "--format", "json"])
    assert "`afterlog run` creates them" in result.output
    assert result.exit_code == 0
    assert not (tmp_path / "warehouse").exists()
