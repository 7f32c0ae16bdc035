"""What a warehouse knows of its writers' clocks: the newest time that one had, and between which times one was behind.

A time that was written while a clock was behind looks older than it is. What goes by its age asks here, so that it does
not go early; docs/operate.md says what a person does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pipelines import moments
from pipelines.warehouse.tables import Warehouse

FILE = "_clock/written.json"
APART = timedelta(minutes=10)  # by which clocks of writers may differ
_OFTEN = timedelta(minutes=1)
_LEAD = timedelta(hours=1)  # by which a time that is written can be older than the note
_EVER = datetime.max.replace(tzinfo=UTC)
_looked_at: dict[str, datetime] = {}
"""When this process last looked at the file of a warehouse: on an object store each look is a request."""

Span = tuple[datetime, datetime | None]


@dataclass(frozen=True)
class Written:
    """The newest time of a writer's clock, and the spans in which one was behind: from when to when, None: until now.

    What is stamped within a span can have been written at its end.
    """

    newest: datetime | None = None
    behind: Sequence[Span] = ()

    @classmethod
    def of(cls, warehouse: Warehouse) -> Written:
        """Return what a warehouse knows; nothing if the file is missing or damaged."""
        try:
            values = json.loads(warehouse.store.text(FILE) or "{}")
            behind = [(_time(begin), None if end is None else _time(end)) for begin, end in values["behind"]]
            return cls(_time(values["newest"]), behind)
        except (ValueError, TypeError, KeyError):
            return cls()

    def surely(self, before: datetime) -> datetime:
        """Return a time: what is stamped earlier was written before ``before``, whatever the clock was."""
        for begin, end in sorted(self.behind, key=lambda span: span[1] or _EVER, reverse=True):
            if begin < before <= (end or _EVER):
                before = begin
        return before

    def lag(self, now: datetime) -> timedelta | None:
        """Return by how much a clock is behind what was written; None if it is not."""
        return self.newest - now if self.newest is not None and self.newest - now > APART else None

    def after(self, now: datetime) -> Written:
        """Return what is known once something is written at a time."""
        if self.lag(now) is None:
            if self.newest is not None and now - self.newest <= _OFTEN:
                return self
            return Written(now, [(begin, end or now) for begin, end in self.behind])
        closed = [span for span in self.behind if span[1] is not None]
        begins = [now - _LEAD, *(begin for begin, end in self.behind if end is None)]
        return self if min(begins[1:], default=now) < now else Written(self.newest, [*closed, (min(begins), None)])


def note(warehouse: Warehouse) -> None:
    """Note the time before something is written, at most once a minute."""
    now = moments.now()
    last = _looked_at.get(warehouse.root)
    if not warehouse.opens_tables or (last is not None and timedelta() <= now - last <= _OFTEN):
        return
    _looked_at[warehouse.root] = now
    known = Written.of(warehouse)
    found = known.after(now)
    if found is not known:
        values = {"newest": found.newest, "behind": found.behind}
        warehouse.store.write(FILE, json.dumps(values, default=datetime.isoformat).encode())


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
