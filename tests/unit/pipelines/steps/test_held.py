"""Under which settings rows are held: they are judged again when one of these changes, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.catalog import stages_of_type
from pipelines.settings import Settings, load
from pipelines.stage import Split
from pipelines.steps import held

(LETTERS,) = (stage for stage in stages_of_type(Split) if stage.table == "silver.dlq_records")
JUDGING = {"dlq", "streams_requests", "broker_logs", "acknowledgements", "segments", "tolerance"}


@pytest.mark.parametrize(
    "changed",
    [
        {"engine": "spark"},
        {"alerts": {"route": [{"name": "on-call", "url": "http://127.0.0.1:9/"}]}},
        {"metrics": {"file": "afterlog.prom"}},
        {"replay": {"rate": 7}},
        {"silence": {"after_hours": {"dlq": 7}}},
        {"collect": {"every_seconds": 7}},
        {"lock": {"wait_seconds": 7}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_settings_that_no_gate_reads_leave_held_rows_alone(changed: dict[str, Any]) -> None:
    assert load(**changed) != load()
    assert held.circumstances(load(**changed), LETTERS) == held.circumstances(load(), LETTERS)
    assert held.reading(load(**changed), LETTERS) == held.reading(load(), LETTERS)


@pytest.mark.parametrize(
    "changed",
    [{"tolerance": 0.5}, {"dlq": {"disabled_profiles": ["karafka"]}}],
    ids=lambda changed: next(iter(changed)),
)
def test_settings_that_a_gate_reads_let_held_rows_be_judged_again(changed: dict[str, Any]) -> None:
    assert held.circumstances(load(**changed), LETTERS) != held.circumstances(load(), LETTERS)


def test_each_setting_is_known_to_be_one_or_the_other() -> None:
    assert Settings.model_fields.keys() - held._OTHER_SETTINGS == JUDGING
