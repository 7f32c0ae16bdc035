"""Whom a dead letter belongs to: the words, in Spark's SQL and in Python, and what tells owners apart."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from expectations import owners
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.translate import translated
from pipelines.settings import OwnProfile

FIELDS = ("consumer_group", *owners.NAMED.values(), "header_profile", "dlq_topic")


def said(**values: str | None) -> str | None:
    """Return what the SQL expression says of a record."""
    row = dict.fromkeys(FIELDS) | {"dlq_topic": "dlq.orders"} | values
    columns = ", ".join(f"CAST(${name} AS VARCHAR) AS {name}" for name in FIELDS)
    with sessions.connected("/nowhere") as connection:
        rows = connection.execute(f"SELECT {translated(owners.sql())} FROM (SELECT {columns})", row).fetchall()
    found: str | None = rows[0][0]
    return found


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"consumer_group": "g", "connector_name": "c", "header_profile": "own"}, "g"),
        ({"connector_name": "c", "header_profile": "kafka-connect"}, "connector c"),
        ({"header_profile": "kafka-streams"}, "kafka-streams on dlq.orders"),
        ({"header_profile": "unknown"}, "unknown writer on dlq.orders"),
        ({}, "unknown writer on dlq.orders"),
        ({"dlq_topic": None}, None),
    ],
    ids=["group", "connector", "profile", "profile unknown", "no profile", "unreadable"],
)
def test_the_owner_is_the_first_that_is_named(values: dict[str, str | None], expected: str | None) -> None:
    assert said(**values) == expected


def test_no_two_writers_have_the_same_words() -> None:
    """A profile called `connector` would have those of a connector called `on dlq.orders`: no profile is."""
    assert said(connector_name="on dlq.orders") == said(header_profile="connector") == "connector on dlq.orders"
    for name in (*owners.NAMED, owners.UNKNOWN):
        with pytest.raises(ValidationError, match="a word for whom"):
            OwnProfile(name=name, headers=({"name": "x", "field": "original_topic", "mandatory": True},))  # type: ignore[arg-type]


def test_a_group_that_is_called_like_a_connector_is_another_owner() -> None:
    group = {"consumer_group": "connector c", "owner": "connector c"}
    connector = {"consumer_group": None, "owner": "connector c"}
    assert owners.owner_of(group) == owners.owner_of(connector)
    assert owners.key_of(group) != owners.key_of(connector)
    assert (owners.committing_group(group), owners.committing_group(connector)) == ("connector c", "connect-c")


def test_a_row_from_before_owners_belongs_to_its_group_or_to_nobody_known() -> None:
    old: dict[str, Any] = {"consumer_group": "g"}
    assert (owners.key_of(old), owners.committing_group(old)) == (("g", "g"), "g")
    unknown: dict[str, Any] = {"consumer_group": None, "owner": None}
    assert (owners.key_of(unknown), owners.committing_group(unknown)) == ((None, None), None)
    assert owners.named(*owners.key_of(unknown)) == "no group"


def test_only_a_connectors_group_is_known_without_being_named() -> None:
    assert owners.committing_group({"consumer_group": None, "owner": "kafka-streams on dlq.orders"}) is None


def test_a_sentence_begins_with_the_owner() -> None:
    assert owners.subject("g", "g") == "Group g"
    assert owners.subject(None, "connector c") == "Connector c"
    assert owners.subject(None, "kafka-streams on dlq.orders") == "An application (kafka-streams on dlq.orders)"
    assert owners.subject(None, None) == "An application"
