"""Rules: each one predicate over a row, said twice, for Spark's row split and for the Great Expectations gate.

A rule examines a subject (a column, or an SQL expression over a candidate's columns) and, as in Great Expectations,
a null subject breaks only ``not_null``. A guard limits a rule to the rows it speaks about, such as one header profile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pyspark.sql import Column


def counted(number: int, noun: str) -> str:
    """Return a number of things in words, such as "1 line" and "2 batches"."""
    return f"{number:,} {plural(number, noun)}"


def plural(number: int, noun: str) -> str:
    """Return a noun as it stands behind a number of things, such as "line" behind 1 and "topologies" behind 2."""
    if number == 1:
        return noun
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("ch", "s", "x")) else f"{noun}s"


Kind = Literal["not_null", "one_of", "between", "matches", "is_true"]


@dataclass(frozen=True)
class Rule:
    """One predicate of a contract.

    ``arguments`` are what the kind needs: ``one_of`` the values, ``between`` (least, most) with None for unbounded,
    ``matches`` the pattern as Java and Python both read it, anchored with ``\\A`` and ``\\z`` (Java's end of input).
    ``failure`` says what is wrong with a ``noun`` that breaks the rule, in words for one and many: "cannot be read".
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

    def of(self, subject: str) -> Rule:
        """Return the rule examining an SQL expression in place of the column that it is written on."""
        return replace(self, subject=subject)

    def where(self, guard: str) -> Rule:
        """Return the rule limited to rows for which the SQL predicate is true (null counts as false)."""
        return replace(self, guard=guard)

    def hinting(self, hint: str) -> Rule:
        """Return the rule with a sentence that the message of a broken gate adds: the likely cause, the way on."""
        return replace(self, hint=hint)

    def failing(self, failure: str, noun: str = "row") -> Rule:
        """Return the rule with the words for what breaks it; they follow a number: "64 lines" "cannot be read"."""
        return replace(self, failure=failure, noun=noun)

    def told(self, number: int) -> str:
        """Say that a number of rows breaks the rule, as what is wrong with them: "64 lines cannot be read"."""
        return f"{counted(number, self.noun)} {self.failure}"

    def tolerated(self) -> Rule:
        """Return the rule as one that the gate counts, but whose breach keeps no row out of the table."""
        return replace(self, refuses=False)

    def bound(self, column: str) -> Rule:
        """Return the rule with its stable code, ``column.name``, and the column as subject unless it has another."""
        subject, failure = self.subject or f"`{column}`", self.failure or self._failure(column)
        return replace(self, code=f"{column}.{self.name}", subject=subject, failure=failure)

    def applies(self) -> Column:
        """Return a boolean Column, never null: true where the rule speaks about the row, its subject null or not."""
        from pyspark.sql import functions as F

        return F.coalesce(F.expr(self.guard), F.lit(False)) if self.guard else F.lit(True)

    def broken(self) -> Column:
        """Return a boolean Column, never null: true where the row breaks the rule. Needs a session."""
        from pyspark.sql import functions as F

        subject = F.expr(self.subject)
        broken = subject.isNull() if self.kind == "not_null" else subject.isNotNull() & ~self._holds(subject)
        if self.guard:
            broken = F.expr(self.guard) & broken
        return F.coalesce(broken, F.lit(False))

    def examined(self) -> Column:
        """Return what the gate's expectation looks at: the subject, or where the guard is not true a value that passes.

        Null passes every kind but ``not_null``, for which an empty string stands in; the column is named by the code.
        """
        from pyspark.sql import functions as F

        subject = F.expr(self.subject)
        if self.kind == "not_null":
            examined = F.when(~self.applies() | subject.isNotNull(), F.lit(""))
        else:
            examined = F.when(F.expr(self.guard), subject) if self.guard else subject
        return examined.alias(self.code)

    def _failure(self, column: str) -> str:
        """Return words for what breaks a rule that says none: they are made of what the rule wants."""
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

    def _holds(self, subject: Column) -> Column:
        from pyspark.sql import functions as F

        if self.kind == "one_of":
            return subject.isin(*self.arguments)
        if self.kind == "matches":
            return subject.rlike(self.arguments[0])
        if self.kind == "is_true":
            return subject
        least, most = self.arguments
        bounds = [subject >= least] if least is not None else []
        bounds += [subject <= most] if most is not None else []
        holds = F.lit(True)
        for bound in bounds:
            holds = holds & bound
        return holds


def not_null(meaning: str = "") -> Rule:
    """Require a value; absent, null and empty are alike once a transform has made empty text null."""
    return Rule("not_null", "not_null", meaning=meaning)


def one_of(*values: str | int, name: str = "one_of", meaning: str = "") -> Rule:
    """Require one of the values."""
    return Rule(name, "one_of", values, meaning=meaning)


def at_least(least: int, meaning: str = "") -> Rule:
    """Require a number of at least ``least``."""
    return Rule(f"at_least_{least}".replace("-", "minus_"), "between", (least, None), meaning=meaning)


def between(least: int, most: int, meaning: str = "") -> Rule:
    """Require a number in the closed range."""
    return Rule(f"between_{least}_and_{most}".replace("-", "minus_"), "between", (least, most), meaning=meaning)


def matches(name: str, pattern: str, meaning: str = "") -> Rule:
    """Require text that matches the pattern, which anchors itself with ``\\A`` and ``\\z``."""
    return Rule(name, "matches", (pattern,), meaning=meaning)


def is_true(name: str, subject: str, meaning: str = "") -> Rule:
    """Require an SQL predicate to be true; where it is null the rule has nothing to say."""
    return Rule(name, "is_true", (), subject=subject, meaning=meaning)


def decimal_up_to(most: int) -> str:
    """Return the pattern of the decimals 0 to ``most`` as Kafka prints them: no sign, space, exponent or leading zero.

    The range is decided on the text, since casts differ between engines.
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


GREATEST_MILLIS = 253402300799999  # the last millisecond of the year 9999
INT32 = decimal_up_to(2**31 - 1)
INT64 = decimal_up_to(2**63 - 1)
