"""The parts of a fingerprint in Python: the same texts as in SQL, and what they do to messages and stack traces."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.incidents import signature
from pipelines.settings import ROOT


@pytest.mark.parametrize("name", ["VARYING", "JOINED", "FRAME"])
def test_the_patterns_are_those_of_the_table(name: str) -> None:
    assert getattr(signature, name) in (ROOT / "sql" / "silver" / "dlq_errors.sql").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", [*signature.KEPT, str(signature.MOST_OF_MESSAGE), str(signature.MOST_OF_TRACE)])
def test_the_limits_are_those_of_the_table(text: str) -> None:
    assert text in (ROOT / "sql" / "silver" / "dlq_errors.sql").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        (None, None),
        ("", ""),
        ("Offset rejected by client.", "Offset rejected by client."),
        ("  no answer from 10.0.0.7:8080 after 3000 ms\nat x", "no answer from <*> after <*> ms"),
        ("user 'joe' of a.b@c.de", "user <*> of <*>"),
        ("\r\nsecond", ""),
    ],
)
def test_what_varies_in_a_message_is_left_out(message: str | None, pattern: str | None) -> None:
    assert signature.pattern_of(message) == pattern


PIECES = (
    *("a", "Ab", "x_y", "0", "9f", "deadbeef", "com", "net", ".com", "host", "a.b", "svc", "-c", "é", "ß", "注文"),
    *"😀-.:/@+_ \t\x0b\n'\"`()<",
    *("//", "://", "<*>"),
)


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("a.b:80abc://x")
@example("to ann@b.c")
@example("x+a@b.c")
def test_the_first_look_at_a_place_rules_out_no_match(text: str) -> None:
    assert signature.VARYING.startswith(signature.FIRST_LOOK)
    whole = re.compile(signature.VARYING.removeprefix(signature.FIRST_LOOK), re.ASCII)
    assert re.sub(signature.VARYING, "<*>", text, flags=re.ASCII) == whole.sub("<*>", text)


@pytest.mark.parametrize("begins", ["\tat ", "at ", "  at ", "\nat ", "x\n\x0bat "])
def test_a_frame_can_be_the_first_line(begins: str) -> None:
    assert signature.frame_of(f"{begins}com.acme.A.b(A.java:1)") == "com.acme.A.b"


def test_the_frame_is_the_first_that_is_not_of_a_framework() -> None:
    frames = ("java.base/java.util.A.b(A.java:1)", "app//com.acme.Tax2.of(Tax.java:7)", "com.b.C.d(C)")
    trace = "java.lang.X: a" + "".join(f"\n\tat {frame}" for frame in frames)
    assert signature.frame_of(trace) == "com.acme.Tax*.of"
    assert signature.frame_of("no trace") is None
    assert signature.frame_of(None) is None
