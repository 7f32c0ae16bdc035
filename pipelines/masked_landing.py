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
CHANGED = (*PARTS, "headers", "raw", "masked", "lossy_encoding")


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
        """Take masks in the order of the settings."""
        self.masks, self.none = masks, replace(masks, rules=())
        self.alone = [(rule, replace(masks, rules=(rule,))) for rule in masks.rules]
        of_value = [pair for pair in self.alone if pair[0].value or pair[0].path is not None]
        self.of_value = sorted(of_value, key=lambda pair: not pair[0].value)  # what hides all of it goes before paths

    def hidden(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row with what masks hide replaced, and their targets in ``masked``; null if they hid nothing.

        It counts as a lossy copy, so that it contradicts none of the same record that landed without masks. A key that
        is dropped is null: equal words instead of it would make one key of many. Headers that say where a record stood
        and whose it is stay, unless a mask names one of them in full.
        """
        if row["error"] is not None:
            return {**row, "raw": None, "masked": [LINE]}
        record = {**row, **self._source(row["headers"] or ()), "masked": None}
        key, headers, of_others = self._others(record)
        value, of_value = self._value(record)
        done = [
            target
            for target in dict.fromkeys(rule.target for rule in self.masks.rules)
            if target in of_others | of_value
        ]
        if not done:
            return {**row, "masked": None}
        return {**row, "key": key, "value": value, "headers": headers, "raw": None} | {
            "masked": done,
            "lossy_encoding": True,
        }

    def _others(self, record: Mapping[str, Any]) -> tuple[bytes | None, list[Any] | None, set[str]]:
        """Return key and headers without what masks hide there, and the targets of these; the first mask counts."""
        key, headers, done = record["key"], record["headers"] and [*record["headers"]], set[str]()
        for rule, alone in self.alone:
            after = alone.parts({**record, "value": None})
            if rule.key and key is record["key"] and isinstance(after.get("key"), Masked):
                key = None if after["key"] == DROPPED else _written(after["key"])
                done.add(rule.target)
            for at, now in enumerate(after.get("headers", ())):
                old = record["headers"][at]
                if now != old and headers[at] is old and not self._stays(old["key"] or "", rule):
                    headers[at] = {**now, "value": _written(now["value"])}
                    done.add(rule.target)
        return key, headers, done

    def _value(self, record: Mapping[str, Any]) -> tuple[bytes | None, set[str]]:
        """Return the value without what masks hide of it, one after the other, and the targets of these."""
        value, done = record["value"], set[str]()
        for rule, alone in self.of_value:
            seen = {**record, "value": value, "masked": [*done]}
            payload = alone.payload(seen, "value")
            if rule.target in done or payload.masked is None or self._is_same(payload, seen):
                continue
            value = _written(payload.masked)
            done.add(rule.target)
            if payload.form is None:
                break  # all of it is hidden
        return value, done

    def _is_same(self, payload: Payload, record: Mapping[str, Any]) -> bool:
        """Tell whether a mask found nothing at its path in a value that it could read."""
        return payload.form is not None and payload.data == self.none.payload(record, "value").data

    def _stays(self, name: str, rule: Mask) -> bool:
        return rule.header is not None and rule.header != name and self.masks.tells_more_than_errors(name)

    def _source(self, headers: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
        """Return the source topics that headers name, as columns of a dead letter; none if one is not known by name."""
        sources = self.masks.sources(headers)
        if not sources or None in sources:
            return {}
        *earlier, newest = sources
        return {"original_topic": newest, "earlier_hops": [{"topic": topic} for topic in earlier]}


def _written(masked: Masked) -> bytes:
    """Return the bytes that are written for what masks show."""
    return masked.encode("utf-8", "surrogatepass")
