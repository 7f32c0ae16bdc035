"""Rules: each is one predicate over a row, for Spark's row split and for the Great Expectations gate.

A rule examines a subject: a column, or an SQL expression over a candidate's columns. As in Great Expectations, a null
subject breaks only ``not_null``. A guard limits a rule to some rows, such as those of one header profile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from expectations import literals

if TYPE_CHECKING:
    from pyspark.sql import Column


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 line" and "2 batches".

    >>> counted(1, 'line'), counted(2000, 'batch')
    ('1 line', '2,000 batches')
    """
    return f"{number:,} {plural(number, noun)}"


def plural(number: int, noun: str) -> str:
    """Return the form of a noun for a number, such as "line" for 1 and "topologies" for 2."""
    if number == 1:
        return noun
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("ch", "sh", "s", "x")) else f"{noun}s"


Kind = Literal["not_null", "one_of", "between", "matches", "is_true"]


@dataclass(frozen=True)
class Rule:
    """One predicate of a contract.

    ``arguments`` depend on the kind. ``one_of`` has the values. ``between`` has (least, most), with None for unbounded.
    ``matches`` has a pattern that Java and Python read alike, anchored with ``\\A`` and ``\\z`` (Java's end of input).
    ``failure`` says what is wrong with a ``noun`` that breaks the rule, in words for one and many: "cannot be read".
    ``reason`` is the column that says why a row could not be read, if the rule wants that it could.
    """

    name: str
    kind: Kind
    arguments: tuple[Any, ...] = ()
    subject: str = ""
    guard: str = ""
    meaning: str = ""
    hint: str = ""
    code: str = ""
    refuses: bool = True
    failure: str = ""
    noun: str = "row"
    reason: str = ""

    def of(self, subject: str) -> Rule:
        """Return the rule with an SQL expression as its subject, in place of the column that declares it."""
        return replace(self, subject=subject)

    def where(self, guard: str) -> Rule:
        """Return the rule limited to rows for which the SQL predicate is true; null counts as false."""
        return replace(self, guard=guard)

    def hinting(self, hint: str) -> Rule:
        """Return the rule with a sentence for the message of a broken gate: the likely cause and what to do."""
        return replace(self, hint=hint)

    def failing(self, failure: str, noun: str = "row") -> Rule:
        """Return the rule with words for rows that break it; they follow a count: "64 lines" "cannot be read"."""
        return replace(self, failure=failure, noun=noun)

    def because(self, column: str) -> Rule:
        """Return the rule as one that a row could be read; the column has the reason why it could not."""
        return replace(self, reason=column)

    def phrase(self, number: int) -> str:
        """Say how many rows break the rule and what is wrong with them: "64 lines cannot be read"."""
        return f"{counted(number, self.noun)} {self.failure}"

    def tolerated(self) -> Rule:
        """Return the rule as tolerated: the gate counts failing rows, but the rule keeps no row out of the table."""
        return replace(self, refuses=False)

    def bound(self, column: str) -> Rule:
        """Return the rule with its stable code, ``column.name``, and the column as subject unless it has another."""
        subject, failure = self.subject or f"`{column}`", self.failure or self._failure(column)
        return replace(self, code=f"{column}.{self.name}", subject=subject, failure=failure)

    def applies(self) -> Column:
        """Return a boolean Column, never null: true if the rule applies to the row, even if its subject is null."""
        from pyspark.sql import functions as F

        return F.coalesce(F.expr(self.guard), F.lit(False)) if self.guard else F.lit(True)

    def breaks(self) -> str:
        """Return a predicate of Spark SQL, never null: true if the row breaks the rule."""
        broken = f"({self.subject}) IS NULL" if self.kind == "not_null" else f"NOT ({self._holds()})"
        return f"coalesce(({self.guard}) AND {broken}, false)" if self.guard else f"coalesce({broken}, false)"

    def broken(self) -> Column:
        """Return ``breaks`` as a boolean Column. Needs a Spark session."""
        from pyspark.sql import functions as F

        return F.expr(self.breaks())

    def examined(self) -> Column:
        """Return the Column that the gate's expectation examines, named by the rule's code.

        It is the subject, or a value that passes if the guard is not true. Null passes every kind but ``not_null``. For
        that kind the Column is an empty string if the row passes, else null.
        """
        from pyspark.sql import functions as F

        subject = F.expr(self.subject)
        if self.kind == "not_null":
            examined = F.when(~self.applies() | subject.isNotNull(), F.lit(""))
        else:
            examined = F.when(F.expr(self.guard), subject) if self.guard else subject
        return examined.alias(self.code)

    def _failure(self, column: str) -> str:
        """Return default words for rows that break the rule, made from its kind and arguments."""
        if self.kind == "not_null":
            return f"came without {column}"
        if self.kind == "one_of":
            return f"had none of the known values as {column}"
        if self.kind == "between":
            least, most = self.arguments
            if most is None:
                return f"had {column} below {least}"
            return f"had {column} above {most}" if least is None else f"had {column} outside {least} to {most}"
        return f"had {column} that breaks {self.name}"

    def _holds(self) -> str:
        """Return the predicate that the subject must fulfil; null if the subject is null."""
        subject = f"({self.subject})"
        if self.kind == "one_of":
            return f"{subject} IN ({', '.join(map(literals.spark, self.arguments))})"
        if self.kind == "matches":
            return f"{subject} RLIKE {literals.spark(self.arguments[0])}"
        if self.kind == "is_true":
            return subject
        least, most = self.arguments
        bounds = [f"{subject} >= {literals.spark(least)}"] if least is not None else []
        bounds += [f"{subject} <= {literals.spark(most)}"] if most is not None else []
        return " AND ".join(bounds)


def not_null(meaning: str = "") -> Rule:
    """Require a value; if the transform makes empty text null, absent, null and empty all break the rule.

    >>> not_null().bound('dlq_offset').code
    'dlq_offset.not_null'
    """
    return Rule("not_null", "not_null", meaning=meaning)


def one_of(*values: str | int, name: str = "one_of", meaning: str = "") -> Rule:
    """Require one of the values.

    >>> one_of('TCP', 'TLS').bound('protocol').arguments
    ('TCP', 'TLS')
    """
    return Rule(name, "one_of", values, meaning=meaning)


def at_least(least: int, meaning: str = "") -> Rule:
    """Require a number of at least ``least``.

    >>> at_least(0).bound('dlq_offset').failure
    'had dlq_offset below 0'
    """
    return Rule(f"at_least_{least}".replace("-", "minus_"), "between", (least, None), meaning=meaning)


def between(least: int, most: int, meaning: str = "") -> Rule:
    """Require a number in the closed range."""
    return Rule(f"between_{least}_and_{most}".replace("-", "minus_"), "between", (least, most), meaning=meaning)


def matches(name: str, pattern: str, meaning: str = "") -> Rule:
    """Require text that matches the pattern, which anchors itself with ``\\A`` and ``\\z``."""
    return Rule(name, "matches", (pattern,), meaning=meaning)


def is_true(name: str, subject: str, meaning: str = "") -> Rule:
    """Require an SQL predicate to be true; a null predicate does not break the rule.

    >>> is_true('answered', 'status <> 0').bound('status').code
    'status.answered'
    """
    return Rule(name, "is_true", (), subject=subject, meaning=meaning)


def readable(column: str, meaning: str, noun: str = "line") -> Rule:
    """Require that a row could be read; ``column`` has the reason why it could not.

    A file of which no row could be read breaks the gate, however few its rows are.
    """
    return is_true("readable", f"{column} IS NULL", meaning).failing("cannot be read", noun).because(column)


def decimal_up_to(most: int) -> str:
    """Return the pattern of the decimals 0 to ``most`` as Kafka prints them: no sign, space, exponent or leading zero.

    The pattern checks the range on the text, because casts differ between engines.
    """
    digits = str(most)
    shorter = [f"[1-9][0-9]{{0,{len(digits) - 2}}}"] if len(digits) > 1 else []
    branches = ["0", *shorter]
    for position, digit in enumerate(digits):
        least = "1" if position == 0 else "0"
        if int(digit) > int(least):
            rest = len(digits) - position - 1
            branches.append(f"{digits[:position]}[{least}-{int(digit) - 1}]" + (f"[0-9]{{{rest}}}" if rest else ""))
    branches.append(digits)
    return r"\A(?:" + "|".join(branches) + r")\z"


SPOKEN = matches("spoken", r"\A[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}\z", "An id can be said on the phone.")
GREATEST_MILLIS = 253402300799999  # the last millisecond of the year 9999
INT32 = decimal_up_to(2**31 - 1)
INT64 = decimal_up_to(2**63 - 1)
