"""Which groups of a table are computed again, according to the head of its SELECT."""

from __future__ import annotations

from datetime import timedelta

import pytest

from expectations.contract import contract_of
from pipelines.catalog import stages_of_type
from pipelines.stage import Summarise
from pipelines.steps.refresh import Along, EachIn, EachOf, OwnRows, Refresh, Span, parsed, refresh_of
from tests.testing.engines import contract_of_input

TABLE = Summarise("gold.made", feed="f", inputs=("silver.a", "silver.b"))


@pytest.mark.parametrize("stage", stages_of_type(Summarise), ids=lambda stage: stage.table)
def test_each_table_is_refreshed_by_one_of_its_columns(stage: Summarise) -> None:
    refresh = refresh_of(stage)
    types = {column.name: column.type for column in contract_of(stage.table).columns}
    assert types.get(refresh.column) in ("string", "timestamp", "date", "int", "bigint")
    assert refresh.groups.keys() == set(stage.inputs)
    own = [group.column for group in refresh.groups.values() if isinstance(group, OwnRows)]
    assert {*own} <= {column.name for column in contract_of(stage.table).columns}


def test_an_input_without_a_line_has_the_group_under_the_columns_name() -> None:
    text = "-- Purpose: a.\n-- Refresh: group_id\n-- A remark.\nSELECT 1"
    assert parsed(text, TABLE) == Refresh("group_id", {"silver.a": "group_id", "silver.b": "group_id"})


def test_each_input_has_an_expression_which_may_go_on_or_be_of_own_rows() -> None:
    text = """\
-- Refresh: hour, a span of 2 hours of routed_at
--   silver.a: each of concat(x, ':', y) and z
--     where counts AND z
--   silver.b: own rows by topic where NOT in_log
SELECT 1"""
    each = EachOf(("concat(x, ':', y)", "z"), "counts AND z")
    assert each.expression == "IF(counts AND z, array_distinct(array_compact(array(concat(x, ':', y), z))), array())"
    groups = {"silver.a": each, "silver.b": OwnRows("topic", "NOT in_log")}
    assert parsed(text, TABLE) == Refresh("hour", groups, Span("routed_at", timedelta(hours=2)))


def test_rows_of_an_input_may_form_chains() -> None:
    text = """\
-- Refresh: part
--   silver.a: part along
--     concat(x, ':', y) at most 8 times
--   silver.b: part
SELECT 1"""
    chains = Along("part", "concat(x, ':', y)", 8)
    assert parsed(text, TABLE) == Refresh("part", {"silver.a": chains, "silver.b": "part"})


def test_an_input_may_have_an_array_of_groups() -> None:
    text = "-- Refresh: part\n--   silver.a: each in parts\n--   silver.b: part\nSELECT 1"
    assert parsed(text, TABLE) == Refresh("part", {"silver.a": EachIn("parts"), "silver.b": "part"})


@pytest.mark.parametrize("stage", stages_of_type(Summarise), ids=lambda stage: stage.table)
def test_arrays_of_groups_are_called_such(stage: Summarise) -> None:
    for table, group in refresh_of(stage).groups.items():
        arrays = {column.name for column in contract_of_input(table).columns if column.type.startswith("array")}
        assert (group.expression if isinstance(group, EachIn) else None) in {None, *arrays}
        assert group not in arrays


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("-- Purpose: a.\nSELECT 1", "has no line like", id="none"),
        pytest.param("-- Refresh: by hour\nSELECT 1", "has no line like", id="of two words"),
        pytest.param("-- Refresh: hour\n--   silver.a: x\nSELECT 1", "names silver.a; its inputs", id="one input"),
        pytest.param("-- Refresh: hour\n--   a: x\nSELECT 1", "cannot be read: --   a: x", id="no table"),
        pytest.param(
            "-- Refresh: hour\n--   silver.a: x along y at most 8 times when z change\n--   silver.b: x\nSELECT 1",
            "cannot go along chains",
            id="columns of chains",
        ),
        pytest.param("-- Refresh: hour\n--     x\nSELECT 1", "cannot be read: --     x", id="no beginning"),
    ],
)
def test_a_head_that_cannot_be_read_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parsed(text, TABLE)
