"""Under which settings rows are held: they are judged again when one of these changes, and no other."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pipelines.catalog import stages, stages_of_type
from pipelines.errors import UsageError
from pipelines.settings import Settings, load
from pipelines.stage import Split
from pipelines.steps import held
from pipelines.steps.held import Acceptance
from pipelines.warehouse import progress
from pipelines.warehouse.progress import Batch, Held, Progress
from pipelines.warehouse.tables import Warehouse

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


def test_a_scope_to_accept_that_nothing_is_held_of_is_refused(settings: Settings) -> None:
    warehouse, dlq = Warehouse(settings), stages("dlq")
    held_now = {name: Held("2026-11-21T02:00:00+00:00", "It broke.", 20, "") for name in ("dlq.orders", "dlq.a\x1b")}
    progress.save(warehouse, LETTERS.table, Progress(held=held_now))

    def remarks(*asked: str) -> list[str]:
        return Acceptance.of(asked, dlq).remarks(warehouse)

    assert remarks(f"{LETTERS.table}:dlq.orders", LETTERS.table, f"{LETTERS.table}:dlq.a\\u001b") == []
    for wrong, near in (("dlq.order", "Did you mean 'dlq.orders'?"), ("x", "`afterlog ask blocked_tables` names what")):
        with pytest.raises(UsageError, match=re.escape(near)) as told:
            remarks(f"{LETTERS.table}:dlq.orders", f"{LETTERS.table}:{wrong}")
        assert str(told.value).startswith(f"Nothing of {LETTERS.table} is held as '{wrong}'.")
    progress.save(warehouse, LETTERS.table, Progress(pending={"bronze.dlq_records": Batch(0, 1)}))
    assert remarks(f"{LETTERS.table}:dlq.orders") == []  # a run that was killed may have released it


def test_a_table_to_accept_may_break_its_contract_only_in_this_run(settings: Settings) -> None:
    (said,) = Acceptance.of([LETTERS.table], stages("dlq")).remarks(Warehouse(settings))
    assert said.startswith(f"Nothing of {LETTERS.table} is held: it is accepted if this run finds")


def test_each_setting_is_known_to_be_one_or_the_other() -> None:
    assert Settings.model_fields.keys() - held._OTHER_SETTINGS == JUDGING
