"""A value is found and replaced in every form in which it can stand, and nothing else is touched."""

from __future__ import annotations

import base64
import html
import json
import secrets
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.erasure import Words, is_searched, token
from pipelines.incidents.nameless import without_messages, without_values
from pipelines.incidents.signature import frame_of, pattern_of

SECRET = secrets.token_bytes(16)
FORMS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda content: content,
    "base64": base64.b64encode,
    "base64 of addresses": lambda content: base64.urlsafe_b64encode(content).rstrip(b"="),
    "hexadecimal": lambda content: content.hex().encode(),
    "HEXADECIMAL": lambda content: content.hex().upper().encode(),
    "base64 twice": lambda content: base64.b64encode(base64.b64encode(content)),
}
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@given(
    value=st.binary(min_size=8, max_size=24).filter(lambda value: not value.isdigit()),
    before=st.binary(max_size=8),
    behind=st.binary(max_size=8),
    form=st.sampled_from(sorted(FORMS)),
)
@example(value=b"canary-7f3a9c", before=b"a", behind=b"", form="base64")
def test_no_form_of_a_value_is_left(value: bytes, before: bytes, behind: bytes, form: str) -> None:
    words = Words.of([value], SECRET)
    content = b'{"x": "' + FORMS[form](before + b" " + value + b" " + behind) + b'"}'
    assert words.are_in(content)
    clean = words.replaced(content)
    assert value not in clean
    assert not words.are_in(clean)
    assert FORMS[form](before + b" " + value + b" " + behind) not in clean


@given(value=texts.filter(lambda text: is_searched(text.encode())))
def test_escapes_of_texts_are_found(value: str) -> None:
    words = Words.of([value.encode()], SECRET)
    for content in (json.dumps({"who": value}), json.dumps({"who": value}, ensure_ascii=False), html.escape(value)):
        clean = words.replaced_text(f"<{content}>")
        assert words.replaced_by[value.encode()].decode() in clean
    assert words.are_in(f"/who/{quote(value)}/".encode())


@pytest.mark.parametrize("form", FORMS)
def test_json_stays_json(form: str) -> None:
    words = Words.of([b"canary-7f3a9c"], SECRET)
    line = json.dumps({"value": FORMS[form](b'{"name": "canary-7f3a9c", "n": 1}').decode(), "offset": 7})
    assert json.loads(words.replaced_text(line))["offset"] == 7


def test_a_short_value_and_a_number_are_words_of_their_own() -> None:
    words = Words.of([b"Anna", b"17952264"], SECRET)
    assert words.are_in(b"Dear Anna, hello")
    assert not words.are_in(b"Annamaria")
    assert words.are_in(b'{"customer": 17952264}')
    assert not words.are_in(b"1795226400000")


@pytest.mark.parametrize("value", [b"", b"17", b"A-1", b"1234567"])
def test_what_stands_in_many_places_by_chance_is_not_searched(value: bytes) -> None:
    assert not Words.of([value], SECRET).replaced_by


@given(value=st.binary(min_size=1, max_size=20))
def test_what_replaces_a_value_stays_in_patterns_of_errors(value: bytes) -> None:
    word = token(SECRET, value).decode()
    assert word != token(secrets.token_bytes(16), value).decode()
    for version in (1, 2):
        assert pattern_of(f"user {word} failed", version) == f"user {word} failed"


words_of_errors = st.sampled_from(
    [
        "user",
        "failed",
        "at",
        "'a b'",
        "17",
        "http://a:b@c.de/x?y=1&z=2",
        "2026-11-21T10:00:00Z",
        "x.example.com:92",
        "(",
        ":",
        *["10.0.0.1", "anna@example.com", "Mon", "[5]", "a-1b2c", "\u201cx\u201d", "\u0663", "`q`", "/orders/17"],
    ]
)


@example(message="http://a:b@c.de/x?y=1&z=2 [5]", version=2)
@given(message=st.lists(words_of_errors, min_size=1, max_size=9).map(" ".join), version=st.sampled_from([1, 2]))
def test_a_message_without_values_has_the_same_pattern(message: str, version: int) -> None:
    clean = without_values(message, version)
    assert pattern_of(clean, version) == pattern_of(message, version)
    assert "example" not in clean
    assert "a b" not in clean


def test_a_trace_without_messages_has_the_same_frame() -> None:
    trace = (
        "java.lang.IllegalStateException: no Anna\n\tat java.lang.Thread.run(Thread.java:9)\n\tat shop.Pay.charge("
        "Pay.java:17)\nCaused by: shop.Refused: Anna\n\tat shop.Pay.ask(Pay.java:20)\n\t... 3 more"
    )
    clean = without_messages(trace)
    assert frame_of(clean) == frame_of(trace) == "shop.Pay.charge"
    assert "Anna" not in clean
    odd = "x: Anna\n\tat shop.Pay.charge(Pay Anna\u00e4.java:17)"
    assert frame_of(without_messages(odd)) == frame_of(odd)
    assert "Anna" not in without_messages(odd)


def test_values_are_not_shown() -> None:
    assert "canary" not in repr(Words.of([b"canary-7f3a9c"], SECRET))
