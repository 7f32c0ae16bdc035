"""Rows of bronze.dlq_records -> rows without what ``[[privacy]]`` hides ``at = "landing"``: it is never written.

In doubt a mask hides more, as in ``pipelines.privacy``: masks for some source topics apply to a record whose source
topic no header names, and of a line that cannot be read nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipelines.payloads import Masked, Payload, check_schemas
from pipelines.privacy import DROPPED, PARTS, Masks
from pipelines.settings import Mask, Settings

if TYPE_CHECKING:
    import pyarrow as arrow  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

LINE = "line"
CHANGED = (*PARTS, "headers", "raw", "masked")


def masked(rows: DataFrame, settings: Settings) -> DataFrame:
    """Return the rows as they may be written.

    Raises UsageError: a mask hashes and there is no key, or a schema file cannot be used.
    """
    rules = tuple(rule for rule in settings.privacy if rule.at == "landing")
    if not rules:
        return rows
    check_schemas(settings)
    masks = replace(Masks.of(settings), rules=rules)
    return rows.mapInArrow(_mapping(masks), rows.schema)


def _mapping(masks: Masks) -> Callable[[Iterable[arrow.RecordBatch]], Iterable[arrow.RecordBatch]]:
    def mapped(batches: Iterable[arrow.RecordBatch]) -> Iterator[arrow.RecordBatch]:
        import pyarrow as arrow

        landing = Landing(masks)
        for batch in batches:
            rows = [landing.hidden(row) for row in batch.select(["error", *CHANGED]).to_pylist()]
            for name in CHANGED:
                at = batch.schema.get_field_index(name)
                field = batch.schema.field(at)
                batch = batch.set_column(at, field, arrow.array([row[name] for row in rows], type=field.type))
            yield batch

    return mapped


class Landing:
    """What hides parts of rows of bronze."""

    def __init__(self, masks: Masks) -> None:
        """Take masks, to be applied one after the other."""
        self.masks = masks
        ordered = sorted(masks.rules, key=lambda rule: not rule.value)  # what hides a whole value goes before paths
        self.alone = [(rule, replace(masks, rules=(rule,))) for rule in ordered]

    def hidden(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row with what masks hide replaced, and their targets in ``masked``; null if they hid nothing.

        A key that is dropped is null: equal words in its place would make one key of many. Headers that say where a
        record stood and whose it is stay, unless a mask names one of them in full.
        """
        if row["error"] is not None:
            return {**row, "raw": None, "masked": [LINE]}
        source = self._source(row["headers"] or ())
        seen, done, done_headers, is_whole = dict(row), list[str](), set[int](), False
        for rule, alone in self.alone:
            if rule.target in done:
                continue
            record = {**seen, **source, "masked": done}
            after = alone.parts(record)
            if rule.path is not None or rule.value:
                payload = alone.payload(record, "value")
                if is_whole or self._is_same(payload, record):
                    after["value"] = seen["value"]
                is_whole = is_whole or (payload.masked is not None and payload.form is None)
            new: dict[str, Any] = {part: _written(after[part], part) for part in PARTS if part in after}
            for at, (old, now) in enumerate(zip(seen["headers"] or (), after.get("headers", ()), strict=False)):
                if old != now and at not in done_headers and not self._stays(old["key"] or "", rule):
                    done_headers.add(at)
                    new.setdefault("headers", list(seen["headers"]))[at] = {**now, "value": _written(now["value"], "")}
            if any(new[name] != seen[name] for name in new):
                seen |= new
                done.append(rule.target)
        return {**seen, "raw": None, "masked": done} if done else {**row, "masked": None}

    def _is_same(self, payload: Payload, record: Mapping[str, Any]) -> bool:
        """Tell whether a mask found nothing at its path in a value that it could read."""
        before = replace(self.masks, rules=()).payload(record, "value")
        return payload.form is not None and payload.data == before.data

    def _stays(self, name: str, rule: Mask) -> bool:
        return rule.header is not None and rule.header != name and self.masks.tells_place(name)

    def _source(self, headers: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
        """Return the source topics that headers name, as columns of a dead letter; none if one is not known by name."""
        sources = self.masks.sources(headers)
        if not sources or None in sources:
            return {}
        *earlier, newest = sources
        return {"original_topic": newest, "earlier_hops": [{"topic": one} for one in earlier]}


def _written(value: Any, part: str) -> Any:
    """Return the bytes to write in place of a key, a value or the value of a header."""
    if not isinstance(value, Masked):
        return value
    return None if part == "key" and value == DROPPED else value.encode("utf-8", "surrogatepass")
