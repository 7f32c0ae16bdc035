"""conf/remediation.toml -> what is done with a dead letter: the first rule that matches it decides."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from expectations.owners import owner_of, owner_sql
from expectations.silver.dlq_records import DISPOSITIONS
from pipelines.columns import globs
from pipelines.errors import UsageError
from pipelines.incidents.verdict import VERDICTS
from pipelines.settings import ROOT, Settings, located
from pipelines.settings.files import text_of
from pipelines.settings.section import Section, first_mistake

Action = Literal["REPLAY", "HOLD", "DISCARD", "REVIEW"]


class Rule(Section):
    """A rule: all patterns that it has must match, then ``then`` is done.

    ``group``, ``topic``, ``dlq_topic`` and ``error`` are glob patterns; ``error`` matches the class of the exception or
    the message, ``group`` the owner. A pattern never matches what the dead letter does not say.
    """

    name: Annotated[str, Field(min_length=1, max_length=200)]
    disposition: str | None = None
    group: str | None = None
    topic: str | None = None
    dlq_topic: str | None = None
    error: str | None = None
    verdict: str | None = None
    then: Action

    @field_validator("disposition")
    @classmethod
    def _check_disposition(cls, name: str | None) -> str | None:
        if name is not None and name not in DISPOSITIONS:
            raise ValueError(f"name one of {', '.join(DISPOSITIONS)}")
        return name

    @field_validator("verdict")
    @classmethod
    def _check_verdict(cls, name: str | None) -> str | None:
        if name is not None and name not in VERDICTS:
            raise ValueError(f"name one of {', '.join(VERDICTS)}")
        return name

    def matches(self, letter: Mapping[str, Any]) -> bool:
        """Tell whether a row of silver.dlq_records, with the ``verdict`` of its incident, is what the rule is about."""
        return self.verdict in (None, letter.get("verdict")) and self.may_match(letter)

    def may_match(self, letter: Mapping[str, Any]) -> bool:
        """Tell the same of all but the verdict, which is not known until the record's incident is."""
        patterns = (
            (self.group, [owner_of(letter)]),
            (self.topic, [letter.get("original_topic")]),
            (self.dlq_topic, [letter.get("dlq_topic")]),
            (self.error, [letter.get("exception_class"), letter.get("error_message")]),
        )
        return self.disposition in (None, letter.get("disposition")) and all(
            pattern is None or any(text is not None and globs.matches(pattern, text) for text in texts)
            for pattern, texts in patterns
        )

    def as_sql(self, number: int) -> tuple[str, dict[str, str]]:
        """Return a condition on ``records`` that all dead letters meet that the rule matches, and its values."""
        wanted = {"disposition": self.disposition, "group": self.group}
        wanted |= {"original_topic": self.topic, "dlq_topic": self.dlq_topic}
        parts, values = [], {}
        for column, pattern in wanted.items():
            if pattern is None or set(pattern) & set("%_\\"):
                continue
            name = f"rule_{number}_{column}"
            values[name] = pattern.replace("*", "%").replace("?", "_")
            text = owner_sql("records") if column == "group" else f"records.{column}"
            parts.append(f"{text} LIKE :{name}")
        return " AND ".join(parts) or "true", values


class _File(Section):
    rule: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class Rules:
    """The rules of a file, in order; ``digest`` is another one whenever a rule is."""

    rules: tuple[Rule, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 over the rules."""
        return hashlib.sha256(repr([rule.model_dump() for rule in self.rules]).encode()).hexdigest()

    def replayed(self) -> tuple[str, dict[str, str]]:
        """Return a condition on ``records`` that all dead letters meet that a rule may replay, and its values."""
        conditions = [rule.as_sql(number) for number, rule in enumerate(self.rules) if rule.then == "REPLAY"]
        values = {name: value for _, some in conditions for name, value in some.items()}
        return " OR ".join(f"({text})" for text, _ in conditions) or "false", values

    def decide(self, letter: Mapping[str, Any]) -> tuple[Action, Rule | None]:
        """Return what is to be done with a dead letter and the rule that says so: REVIEW if no rule matches.

        As long as no incident has a dead letter, its verdict is not known. A rule that looks at it may match later, so
        nothing behind this rule replays or discards the dead letter: the decision is REVIEW.
        """
        waits: Rule | None = None
        for rule in self.rules:
            if rule.matches(letter):
                if waits is not None and rule.then in ("REPLAY", "DISCARD"):
                    return "REVIEW", waits
                return rule.then, rule
            if waits is None and letter.get("verdict") is None and rule.may_match(letter):
                waits = rule
        return "REVIEW", None


def of(settings: Settings) -> Rules:
    """Return the rules of the file that the settings name.

    Raises UsageError: the file cannot be used, or is not there: without its rules everything would be replayed.
    """
    file = settings.replay.rules
    return read(ROOT / "conf" / "remediation.toml" if file is None else located(file))


def read(file: Path) -> Rules:
    """Read the rules of a file.

    Raises UsageError: the file is not there, or cannot be used.
    """
    if not file.exists():
        raise UsageError(
            f"The file of rules {file} does not exist: correct [replay] rules, or write an empty file for no rules."
        )
    try:
        parsed = _File.model_validate(tomllib.loads(text_of(file, "rules of [replay]")))
    except ValidationError as error:
        raise UsageError(f"The rules in {file} cannot be used: {first_mistake(error)}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"The rules in {file} cannot be read: {error}") from None
    names = [rule.name for rule in parsed.rule]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"The rules in {file} cannot be used: two are called {twice[0]!r}.")
    return Rules(parsed.rule)
