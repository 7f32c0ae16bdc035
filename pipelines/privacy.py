"""Dead letters -> dead letters whose secrets are masked, as the settings ``[[privacy]]`` say.

In doubt a mask hides more. If the source topic of a record is not known for sure, the masks of all topics apply. If a
mask has a path and the value cannot be read as data, the whole value is masked.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from expectations import owners
from expectations.owners import OWNER
from expectations.silver.dlq_records import TOPIC_NAME
from pipelines.columns import globs
from pipelines.columns.profiles import PROFILES, SHARE_GROUP, Header, own_profiles
from pipelines.errors import UsageError
from pipelines.payloads import Masked, Number, Part, Payload, Reader, as_json
from pipelines.settings import Mask, OwnProfile, Settings
from pipelines.settings.payloads import Step, steps_of
from pipelines.settings.profiles import shipped_profiles

DROPPED = Masked("<dropped>")
HEX_DIGITS = 12  # of a hash that are shown
LEAST_KEY_BYTES = 16
MOST_NAMES = 10_000  # of headers whose meaning is kept

ERROR_TEXTS = ("error_message", "exception_stacktrace")
CLASSES = ("exception_class", "exception_cause_class")
NAMES = ("consumer_group", "connector_name", "task_id", "stage", "stage_class")
PARTS: tuple[Part, ...] = ("key", "value")
HEADERS = ("user_headers", "headers")
COPIES = ("raw", "input")  # columns of quarantine and of held rows that hold the record a second time
# Spring's serialized exceptions contain the payload that could not be deserialized.
COPIES_OF_PARTS: dict[str, Part] = {
    "springDeserializerExceptionKey": "key",
    "springDeserializerExceptionValue": "value",
}

_TOPIC_NAME = re.compile(TOPIC_NAME.replace(r"\z", r"\Z"))
_CLASS = re.compile(r"[\w$.]+")
_NOWHERE = object()


@dataclass(frozen=True)
class Masks:
    """The masks of the settings, the key of hashes, and what reads payloads and knows the headers of errors."""

    rules: tuple[Mask, ...] = ()
    key: bytes = field(default=b"", repr=False)
    reader: Reader = field(default_factory=Reader)
    own: tuple[OwnProfile, ...] = ()

    @classmethod
    def of(cls, settings: Settings, environment: Mapping[str, str] = os.environ) -> Masks:
        """Return the masks of the settings.

        Raises UsageError: a mask hashes, and the environment has no key or one that is too short.
        """
        key = b""
        if any(rule.do == "hash" for rule in settings.privacy):
            variable = settings.privacy_key.hash_key_env or ""
            key = environment.get(variable, "").encode("utf-8", "surrogateescape")
            if len(key) < LEAST_KEY_BYTES:
                lacks = f"has fewer than {LEAST_KEY_BYTES} bytes" if key else "is not set"
                raise UsageError(
                    f'[[privacy]] has do = "hash", and the environment variable {variable} {lacks}: '
                    f"set it to a secret of at least {LEAST_KEY_BYTES} bytes."
                )
        return cls(settings.privacy, key, Reader(settings.schemas), settings.dlq.mapped)

    @classmethod
    def hiding(cls, settings: Settings) -> Masks:
        """Return the masks of the settings for what many records have in common; without a key, hashes are dropped."""
        try:
            return cls.of(settings)
        except UsageError:
            rules = tuple(
                rule.model_copy(update={"do": "drop"}) if rule.do == "hash" else rule for rule in settings.privacy
            )
            return cls(rules, b"", Reader(), settings.dlq.mapped)

    @property
    def ask_for_writers(self) -> bool:
        """Tell whether the profiles and earlier hops of records decide what ``error`` hides."""
        return any(rule.topic != "*" or rule.header is not None for rule in self.rules)

    def error(
        self, topic: str | None, has_hops: bool, texts: Mapping[str, str | None], profiles: Collection[str | None] = ()
    ) -> dict[str, Any]:
        """Return the texts of an error that records of a topic have in common, by column, masked.

        If some of them had earlier hops, the masks of all topics apply. ``profiles`` are those of the records: only
        their headers may have filled a text. Without any, those of every profile may. A text that a profile takes from
        a path in the value is hidden if a mask hides the value or a path in it.
        """
        record: dict[str, Any] = {"original_topic": topic, **({} if has_hops else {"earlier_hops": []}), **texts}
        seen = record
        for profile in profiles or (None,):
            seen = self.record(seen | {"header_profile": profile})
        if any(rule.value or rule.path is not None for rule in self._rules(record)):
            for own in self.own:
                if own in shipped_profiles():  # the paths of their envelopes lead to no payload
                    continue
                for mapped in own.headers:
                    if mapped.path and seen.get(mapped.field or "") is not None:
                        seen[mapped.field or ""] = DROPPED
        return {name: seen[name] for name in texts}

    def payload(self, record: Mapping[str, Any], part: Part) -> Payload:
        """Return the key or the value of a record, read and masked.

        Raises UsageError: a schema file cannot be used.
        """
        reader = Reader() if _is_masked(record, part) else self.reader  # what is masked is text or JSON
        payload = reader.read(record.get(part), _topics(record), part)
        if payload.content is None:
            return payload
        rules = self._rules(record)
        for rule in rules:
            if getattr(rule, part):
                return Payload(None, masked=self._masked(payload.content, rule))
        paths = [rule for rule in rules if rule.path is not None] if part == "value" else []
        if not paths:
            return payload
        if payload.form is None:
            whole = self._masked(payload.content, paths[0]) if paths[0].do == "hash" else DROPPED
            return Payload(None, remark="A mask has a path, and the value cannot be read as data.", masked=whole)
        data = payload.data
        for rule in paths:
            data = self._at(data, rule.steps, rule)
        return replace(payload, content=None, data=data, masked=Masked(as_json(data)))

    def hidden(self, record: Mapping[str, Any]) -> list[str]:
        """Return the texts of key, value and ``user_headers`` that masks hide, to find them where they went.

        Raises UsageError: a schema file cannot be used.
        """
        hidden_texts = []
        for part in ("key", "value"):
            masked = self.payload(record, part).masked
            if masked is not None:
                payload = self.reader.read(record[part], _topics(record), part)
                texts = _texts(payload.data if payload.form is not None else payload.content)
                hidden_texts += [text for text in texts if text not in masked]
        rules = self._rules(record)
        for header in record.get("user_headers") or ():
            seen = self._header(header, rules)
            if header and seen and seen.get("value") != header.get("value"):
                hidden_texts += _texts(header["value"])
        return hidden_texts

    def parts(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return key, value and headers of a record, as far as it has them, masked as ``record`` does it."""
        rules = self._rules(record)
        seen: dict[str, Any] = {}
        for part in PARTS:
            if record.get(part) is not None:
                seen[part] = self.payload(record, part).masked or record[part]
        for name in HEADERS:
            if record.get(name) is not None:
                seen[name] = [self._header(header, rules) for header in record[name]]
        return seen

    def record(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a record, a row of ``silver.dlq_records``, its quarantine or its held rows, with its secrets masked.

        What is masked becomes a ``Masked`` text. Of a value that is masked in part, it is the JSON. Other columns stay
        as they are. A record without ``original_topic`` or ``earlier_hops`` gets the masks of all topics.

        Raises UsageError: a schema file cannot be used.
        """
        rules = self._rules(record)
        if not rules:
            return dict(record)
        seen = {**record, **self.parts(record)}
        seen |= {name: None for name in COPIES if name in seen}
        for rule in rules:
            if rule.error:
                self._mask_columns(seen, ERROR_TEXTS, rule)
                self._mask_columns(seen, [name for name in CLASSES if not _is_class(seen.get(name))], rule)
        return self._with_masked_sources(seen, record, rules)

    def _rules(self, record: Mapping[str, Any]) -> list[Mask]:
        """Return the masks for a record, in the order of the settings, without those that hid it as it landed."""
        done = record.get("masked") or ()
        rules = [rule for rule in self.rules if rule.at != "landing" or rule.target not in done]
        if not _is_certain(record):
            return rules
        topics = _topics(record)
        return [rule for rule in rules if any(globs.matches(rule.topic, topic) for topic in topics)]

    def _masked(self, value: Any, rule: Mask) -> Masked:
        """Return the text in place of a key, a value, a header's value, a text or a part of data."""
        if rule.do == "hash":
            digest = hmac.new(self.key, _bytes(value), hashlib.sha256).hexdigest()
            return Masked(f"<hashed {digest[:HEX_DIGITS]}…>")
        text = _scalar(value) if rule.last else None
        if rule.last and text is not None and len(text) >= 2 * rule.last:
            return Masked(f"…{text[-rule.last :]}")
        return DROPPED

    def _mask_columns(self, seen: dict[str, Any], columns: Sequence[str], rule: Mask) -> None:
        for name in columns:
            if seen.get(name) is not None and not isinstance(seen[name], Masked):
                seen[name] = self._masked(seen[name], rule)

    def _header(self, header: Mapping[str, Any] | None, rules: Sequence[Mask]) -> dict[str, Any] | None:
        if header is None:
            return None
        seen = dict(header)
        name, value = header.get("key") or "", header.get("value")
        if value is None:
            return seen
        for rule in rules:
            if rule.header is not None and _fits(rule.header, name):
                return {**seen, "value": self._masked(value, rule)}
        part = COPIES_OF_PARTS.get(name)
        for rule in rules:
            if rule.error and (part or self._is_of_error(name)):
                return {**seen, "value": self._masked(value, rule)}
            if part and (getattr(rule, part) or (part == "value" and rule.path is not None)):
                return {**seen, "value": DROPPED}
        return seen

    def _at(self, data: Any, steps: Sequence[Step], rule: Mask) -> Any:
        """Return data with what is at a path masked, as SQL's lax mode reads a path; nulls stay.

        A name applies to each element of an array, too, and an index or ``[*]`` to something that is no array. Names
        are compared without regard to case and underscores.
        """
        if data is None or isinstance(data, Masked):
            return data
        if not steps:
            return self._masked(data, rule)
        step, rest = steps[0], steps[1:]
        if isinstance(data, list):
            if isinstance(step, str):
                return [self._at(member, steps, rule) for member in data]
            return [self._at(member, rest, rule) if step in (None, at) else member for at, member in enumerate(data)]
        if isinstance(step, str):
            if not isinstance(data, dict):
                return data
            wanted = _plain(step)
            return {
                name: self._at(member, rest, rule) if _plain(name) == wanted else member
                for name, member in data.items()
            }
        if step is None and isinstance(data, dict):
            data = {name: self._at(member, rest, rule) for name, member in data.items()}
            return self._at(data, rest, rule) if rest else data
        return self._at(data, rest, rule) if step in (None, 0) else data

    def _with_masked_sources(
        self, seen: dict[str, Any], record: Mapping[str, Any], rules: Sequence[Mask]
    ) -> dict[str, Any]:
        """Mask the columns that are filled from a header or a path that is masked."""
        by_header = [rule for rule in rules if rule.header is not None]
        for profile, headers in self._profiles if by_header else ():
            is_own = any(profile == own.name for own in self.own)
            for header in headers if _is_written_by(profile, record) else ():
                for rule in by_header:
                    if header.name and _overlaps(rule.header or "", header.name, header.is_prefix):
                        self._mask_columns(seen, _columns(header.field, is_own), rule)
        masked = seen.get("value")
        if not isinstance(masked, Masked):
            return seen
        before = self.reader.read(record.get("value"), _topics(record), "value").data
        after = self.payload(record, "value").data
        for own in self.own:
            if _is_written_by(own.name, record):
                for mapped in own.headers:
                    if mapped.path and mapped.field and _found(before, mapped.path) != _found(after, mapped.path):
                        for name in _columns(mapped.field, is_own=True):
                            if seen.get(name) is not None and not isinstance(seen[name], Masked):
                                seen[name] = DROPPED
        return seen

    def tells_more_than_errors(self, name: str) -> bool:
        """Tell whether a profile reads something else than an error's text from a header of this name."""
        return any(header.field not in ("", *ERROR_TEXTS, *CLASSES) for header in self._headers_named(name))

    def sources(self, headers: Sequence[Mapping[str, Any] | None]) -> list[str | None]:
        """Return the source topics that headers of profiles name; None for one that is not told by its name."""
        topics: list[str | None] = []
        for pair in headers:
            fields = {(header.field, header.encoding) for header in self._headers_named((pair or {}).get("key") or "")}
            if ("original_topic", "text") in fields:
                value = (pair or {}).get("value")
                topics.append(None if value is None else _scalar(value))
            elif {field for field, _ in fields} & {"original_topic", "original_topic_id"}:
                topics.append(None)
        return topics

    def _headers_named(self, name: str) -> list[Header]:
        """Return the headers of all profiles that have a name."""
        if name not in self._by_name:
            if len(self._by_name) >= MOST_NAMES:
                self._by_name.clear()
            known = (header for _, headers in self._profiles for header in headers)
            self._by_name[name] = [header for header in known if _is_named(header, name)]
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, list[Header]]:
        return {}

    @cached_property
    def _profiles(self) -> list[tuple[str, tuple[Header, ...]]]:
        """The headers of each profile, built-in or of the settings, by its name."""
        mapped = [(profile.name, profile.headers) for profile in own_profiles(self.own)]
        return [*((profile.name, profile.headers) for profile in PROFILES), *mapped]

    def _is_of_error(self, name: str) -> bool:
        """Tell whether a header holds a message or a stack trace, also where its set is not complete."""
        return any(
            header.field in ERROR_TEXTS or header.encoding == "throwable" for header in self._headers_named(name)
        )


def _is_named(header: Header, name: str) -> bool:
    """Tell whether a profile's header has a name."""
    return bool(header.name) and (name.startswith(header.name) if header.is_prefix else name == header.name)


def _is_masked(record: Mapping[str, Any], part: Part) -> bool:
    """Tell whether the key or the value was masked as it landed."""
    return any(target == part or (part == "value" and target[:1] == "$") for target in record.get("masked") or ())


def _topics(record: Mapping[str, Any]) -> list[str]:
    """Return the source topics of a record that are known: of its own headers, then of earlier hops, newest first."""
    hops = [hop.get("topic") for hop in reversed(record.get("earlier_hops") or ()) if hop]
    return [topic for topic in (record.get("original_topic"), *hops) if topic]


def _is_certain(record: Mapping[str, Any]) -> bool:
    """Tell whether all source topics of a record are known by name."""
    if "original_topic" not in record or "earlier_hops" not in record:
        return False
    topics = [record["original_topic"], *((hop or {}).get("topic") for hop in record["earlier_hops"] or ())]
    doubts = [*(record.get("violations") or ()), *(record.get("undecodable_headers") or ())]
    return (
        record.get("original_topic_id") is None
        and all(topic is not None and _TOPIC_NAME.search(topic) for topic in topics)
        and not any(doubt.partition(".")[0] == "original_topic" for doubt in doubts)
    )


def _is_written_by(profile: str, record: Mapping[str, Any]) -> bool:
    """Tell whether a profile's headers may have filled a record's columns."""
    own = record.get("header_profile")
    return own is None or own == profile or (own in SHARE_GROUP and profile in SHARE_GROUP)


def _columns(name: str, is_own: bool) -> list[str]:
    """Return the columns that a field of a profile fills and that a mask on its source hides.

    The coordinate of the source record stays, and so do the names that Kafka's own headers give.
    """
    if not is_own:
        return [name] if name in (*ERROR_TEXTS, *CLASSES) else []
    shown = [name] if name in (*ERROR_TEXTS, *CLASSES, *NAMES) else []
    return [*shown, *([OWNER] if name in owners.NAMES else []), f"{name}_text"]


def _fits(glob: str, name: str) -> bool:
    return globs.matches(glob.casefold(), name.casefold())


def _overlaps(glob: str, name: str, is_prefix: bool) -> bool:
    """Tell whether a glob pattern matches a name, or may match a name that begins with it."""
    if not is_prefix:
        return _fits(glob, name)
    head = re.split(r"[*?]", glob.casefold())[0]
    return head.startswith(name.casefold()) or name.casefold().startswith(head)


def _plain(name: str) -> str:
    return name.casefold().replace("_", "")


def _is_class(text: str | None) -> bool:
    return text is None or _CLASS.fullmatch(text) is not None


def _scalar(value: Any) -> str | None:
    """Return the text of a scalar; None for bytes that are not UTF-8, objects and arrays."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return None
    if isinstance(value, dict | list):
        return None
    return value if isinstance(value, str) else as_json(value)


def _texts(data: Any) -> list[str]:
    """Return the texts of the scalars in data that tell something: not null, true, false or empty."""
    if isinstance(data, Mapping | list | tuple):
        return [text for member in (data.values() if isinstance(data, Mapping) else data) for text in _texts(member)]
    text = None if data is None or isinstance(data, bool) else _scalar(data)
    return [str(text)] if text else []


def _bytes(value: Any) -> bytes:
    """Return the bytes to hash, which are equal for a text in a header, a key and a field of a value."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str) and not isinstance(value, Number):
        return value.encode("utf-8", "surrogatepass")
    return as_json(_ordered(value)).encode()


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _ordered(value[name]) for name in sorted(value)}
    return list(map(_ordered, value)) if isinstance(value, list) else value


def _found(data: Any, path: str) -> Any:
    """Return what is at a path of a header profile, which has names and indexes."""
    for step in steps_of(path):
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return _NOWHERE
    return data
