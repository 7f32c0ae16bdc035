from __future__ import annotations

import pytest

from pipelines import text

TABLES = ("bronze.dlq_records", "silver.dlq_records", "gold.dlq_summary", "gold.message_ledger")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("gold.dlq_sumary", " Did you mean 'gold.dlq_summary'?", id="a letter"),
        pytest.param("Gold.Message_Ledger", " Did you mean 'gold.message_ledger'?", id="case"),
        pytest.param("message_ledger", " Did you mean 'gold.message_ledger'?", id="no layer"),
        pytest.param("gold.message_ledger", "", id="the name itself"),
        pytest.param("gold.message", " Did you mean 'gold.message_ledger'?", id="the begin of a name"),
        pytest.param("message_l", " Did you mean 'gold.message_ledger'?", id="the begin of a name without its layer"),
        pytest.param("weather", "", id="nothing like it"),
        pytest.param("", "", id="no name"),
        pytest.param("gold.dlq_summary" * 1000, "", id="longer than any name"),
    ],
)
def test_a_name_that_is_not_there_is_told_what_may_be_meant(name: str, said: str) -> None:
    assert text.hint(name, TABLES) == said


def test_a_table_that_is_not_there_is_told_the_near_miss_or_a_few_of_all() -> None:
    many = [f"silver.table_{place}" for place in range(60)]
    assert text.near("gold.dlq_sumary", TABLES) == " Did you mean 'gold.dlq_summary'?"
    assert text.near("weather", many) == f" There are {', '.join(many[:5])} and 55 more."


def test_several_may_be_meant_and_names_obey_no_terminal() -> None:
    assert text.close("dlq_records", TABLES)[:2] == ["bronze.dlq_records", "silver.dlq_records"]
    assert text.hint("orders\x1b[1m", ["orders\x1b[2m"]) == " Did you mean 'orders\\u001b[2m'?"
    assert len(text.hint("a" * 200, ["a" * 199 + "b"])) < 120


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1_500, "1.5 kB"), (2.5e9, "2.5 GB"), (4e15, "4,000.0 TB")],
)
def test_a_size_is_written_for_people(size: float, words: str) -> None:
    assert text.size_of(size) == words
