"""Answers to questions show errors of dead letters as the masks of the settings let them be shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipelines.commands import arguments, ask
from pipelines.commands import rows as printed
from pipelines.commands.masked import COLUMNS, masked
from pipelines.settings import Settings
from pipelines.settings.payloads import Mask
from pipelines.warehouse.tables import Warehouse
from tests.testing.deliveries import at, store

SECRET = 'refused "ada@example.org"\u2028'
ABOUT_ERRORS = [
    name
    for name, question in ask.questions().items()
    if ("silver.dlq_records" in question.text and "error_message" in question.text) or "error_pattern" in question.text
]
VALUES: dict[str, arguments.Parameter] = {"now": at(9), "topic": "orders", "partition": 0, "offset": 7}


def answered(settings: Settings, name: str, form: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert ask.answer_without_jvm(Warehouse(settings), ask.questions()[name], VALUES, form) is not None
    return capsys.readouterr().out


@pytest.fixture
def with_errors(settings: Settings) -> Settings:
    record = {"cluster": "default", "dlq_topic": "dlq.orders", "dlq_partition": 0, "dlq_offset": 5, "routed_at": at(4)}
    source = {"original_topic": "orders", "original_partition": 0, "original_offset": 7}
    more: dict[str, Any] = {"disposition": "CLIENT_REJECTED", "_bronze_id": "a" * 64, "error_message": SECRET}
    store(settings, "silver.dlq_records", {**record, **source, **more})
    incident = {
        "cluster": "default",
        "incident_id": "x",
        "fingerprint": "f",
        "error_pattern": SECRET,
        "record_count": 1,
    }
    store(settings, "gold.dlq_incidents", incident | {"first_at": at(9), "last_at": at(9), "original_topic": "orders"})
    store(settings, "gold.dlq_summary", {"cluster": "second", "record_count": 0})
    store(settings, "silver.dlq_control_markers", {"cluster": "second", "_bronze_id": "b" * 64})
    return settings


@pytest.mark.parametrize("form", ["table", "csv", "json"])
@pytest.mark.parametrize("name", ABOUT_ERRORS)
def test_no_question_shows_an_error_that_a_mask_hides(
    with_errors: Settings, capsys: pytest.CaptureFixture[str], name: str, form: str
) -> None:
    plain = answered(with_errors, name, form, capsys)
    assert "ada@" in plain
    for mask in (Mask(error=True, do="drop"), Mask(header="__dlq.errors.m*", do="drop")):
        shown = answered(with_errors.model_copy(update={"privacy": (mask,)}), name, form, capsys)
        assert "ada@" not in shown
        assert "<dropped>" in shown
        if form == "json":
            before, after = json.loads(plain), json.loads(shown)
            assert after == before | {item: "<dropped>" for item in COLUMNS if before.get(item)}
    other = with_errors.model_copy(update={"privacy": (Mask(key=True, do="drop"),)})
    assert answered(other, name, form, capsys) == plain


def test_only_the_error_changes(settings: Settings) -> None:
    class Rows:
        names = ("n", "error_message", "original_topic")
        are_numbers = (True, False, False)

        def texts(self) -> list[list[str | None]]:
            return [["1.0E30", "a", "orders"], ["2", None, "orders"], ["3", "a", "payments"]]

        def objects(self) -> list[str]:
            return [
                '{"n":1.0E30,"error_message":"\\u0061","original_topic":"orders"}',
                '{"n":2.50,"error_message":"é"}',
            ]

    rows: printed.Rows = Rows()
    assert masked(rows, settings) is rows
    shown = masked(rows, settings.model_copy(update={"privacy": (Mask(error=True, do="drop"),)}))
    assert list(shown.texts()) == [
        ["1.0E30", "<dropped>", "orders"],
        ["2", None, "orders"],
        ["3", "<dropped>", "payments"],
    ]
    first, second = shown.objects()
    assert json.loads(first) == {"n": 1e30, "error_message": "<dropped>", "original_topic": "orders"}
    assert second == '{"n":2.50,"error_message":"<dropped>"}'
