"""Whom a dead letter belongs to: its consumer group or, if its headers name none, what they name instead.

The words are made here only. A profile's name and a topic have no spaces, and no profile is called like one of the
words in ``NAMED``, so two different writers never get the same words. A group can be called like anything; where that
matters, the group and the owner are compared together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from expectations.text import visible

GROUP, OWNER = "consumer_group", "owner"
CONNECTOR = "connector"
NAMED = {CONNECTOR: "connector_name", "application": "application"}
"""Words for what headers name instead of a group, and the fields that name it; the first that has a value counts."""
NAMES = (GROUP, *NAMED.values())
"""The fields whose values the owner shows."""
UNKNOWN = "unknown"
"""The header profile of a record that nothing tells the writer of."""
NAMELESS = (
    "They are accepted, but where they come from, which group failed and why is unknown. If Kafka Connect writes them, "
    "set errors.deadletterqueue.context.headers.enable=true in its connector; a console consumer prints headers only "
    "with print.headers=true. For other writers see docs/writers.md."
)
"""What is lost if a writer names nothing, and which setting would tell more."""


def sql(field: str = "{}", profile: str = "header_profile", topic: str = "dlq_topic") -> str:
    """Return the owner as a Spark SQL expression; ``field`` makes the name of a field's column from the field.

    It is null only if even the topic is null.
    """
    named = (f"concat('{word} ', {field.format(column)})" for word, column in NAMED.items())
    writer = f"IF(coalesce({profile}, '{UNKNOWN}') = '{UNKNOWN}', 'unknown writer', {profile})"
    return f"coalesce({field.format(GROUP)}, {', '.join(named)}, concat({writer}, ' on ', {topic}))"


def owner_of(row: Mapping[str, Any]) -> str | None:
    """Return the owner of a row: rows from before the column ``owner`` may have only a group.

    >>> owner_of({'consumer_group': None, 'owner': 'sink'})
    'sink'
    """
    group: str | None = row.get(GROUP)
    return group if group is not None else row.get(OWNER)


def owner_sql(rows: str) -> str:
    """Return the same as an SQL expression on the rows of an alias."""
    return f"coalesce({rows}.{GROUP}, {rows}.{OWNER})"


def named(group: str | None, owner: str | None = None) -> str:
    """Return the owner for people, or that nothing names one."""
    return visible(group or owner or "") or "no group"


def key_of(row: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return what tells owners apart: a group can be called like a connector.

    >>> key_of({'consumer_group': 'orders', 'owner': 'orders'})
    ('orders', 'orders')
    """
    return row[GROUP], owner_of(row)


def committing_group(row: Mapping[str, Any]) -> str | None:
    """Return the consumer group that commits an owner's offsets: Connect calls that of a connector ``connect-NAME``."""
    group: str | None = row[GROUP]
    owner = row.get(OWNER)
    if group is None and owner is not None and owner.startswith(f"{CONNECTOR} "):
        return f"connect-{owner.removeprefix(f'{CONNECTOR} ')}"
    return group


def subject(group: str | None, owner: str | None) -> str:
    """Return the owner as the subject of a sentence; a writer that headers do not name can be any application."""
    if group is not None:
        return f"Group {group}"
    if owner is None:
        return "An application"
    word = owner.partition(" ")[0]
    return f"{owner[0].upper()}{owner[1:]}" if word in NAMED else f"An application ({owner})"
