# ruff: noqa: RUF001  # marks of other languages are what this is about
"""The parts of a fingerprint in Python: what they do to messages and stack traces."""

from __future__ import annotations

import re
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.incidents import signature
from pipelines.incidents.episodes import VERSION


@pytest.mark.parametrize("version", [None, 1])
@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        (None, None),
        ("", ""),
        ("Offset rejected by client.", "Offset rejected by client."),
        ("  no answer from 10.0.0.7:8080 after 3000 ms\nat x", "no answer from <*> after <*> ms"),
        ("user 'joe' of a.b@c.de", "user <*> of <*>"),
        ("\r\nsecond", ""),
        (
            "GET https://a.b/c?d=1 of Order5:NotFound(7) at Wed Jul 01 12:00:00 UTC 2026",
            "GET <*> of <*>) at Wed Jul <*> UTC <*>",
        ),
        (
            "balance -5 of „x“ 订单5未找到(代码7) from fe80::dead:beef",
            "balance -<*> of „x“ 订单<*>) from <*>::dead:beef",
        ),
    ],
)
def test_what_the_first_version_told_stays(message: str | None, pattern: str | None, version: int | None) -> None:
    assert signature.pattern_of(message, version) == pattern


def pattern(message: str) -> str:
    found = signature.pattern_of(message, VERSION)
    assert found is not None
    return found


WORDS = st.sampled_from(
    ("Order", "NotFound", "timeout", "Lagerplatz", "отменён", "注文", "订单", "없음", "ไม่พบ", "غير")
)
ZEROS = "0\u0660\u06f0\u0966\u09e6\u0e50\uff10\U0001d7ce"
NUMBERS = st.builds(
    lambda sign, zero, digits: sign + "".join(chr(ord(zero) + int(digit)) for digit in digits),
    st.sampled_from(("", "-", "+", "\u2212")),
    st.sampled_from(ZEROS),
    st.from_regex(r"[0-9]{1,12}(?:\.[0-9]{1,4})?", fullmatch=True).map(lambda text: text.replace(".", "")),
)


def unsigned(number: str) -> str:
    return number.lstrip("-+\u2212")


FORMS = (
    *(
        "%a %b %d %H:%M:%S UTC %Y",
        "%a %b %d %H:%M:%S CEST %Y",
        "%a, %d %b %Y %H:%M:%S GMT",
        "%a, %d %b %Y %H:%M:%S -0700",
    ),
    *("%A, %d-%b-%y %H:%M:%S EST", "%a %b  %d %H:%M:%S %Y", "%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%d %H:%M:%S.%f +0200 CEST"),
    *("%B %d, %Y, %I:%M:%S %p", "%d %B %Y", "%d-%b-%Y %H:%M", "%s", "%Y-%m-%d %H:%M:%S+00:00", "%d.%m.%Y, %H:%M:%S"),
    *("%Y%m%dT%H%M%S", "%A, %B %d, %Y %I:%M:%S %p", "%d-%^b-%y %I.%M.%S %p"),
)
TIMES = st.builds(
    lambda at, form: at.strftime(form),
    st.datetimes(datetime(1971, 1, 1), datetime(2099, 1, 1)),
    st.sampled_from(FORMS),
)
ADDRESSES = st.builds(
    lambda number, form: form(IPv6Address(number)),
    st.one_of(st.integers(0, 2**128 - 1), st.integers(1, 2**16), st.integers(0xFE80 << 112, (0xFE80 << 112) + 2**40)),
    st.sampled_from(
        (
            lambda item: item.compressed,
            lambda item: item.exploded,
            lambda item: item.compressed.upper(),
            lambda item: f"{item.compressed}%eth0",
            lambda item: f"::ffff:{IPv4Address(int(item) % 2**32)}",
            lambda item: ":".join(f"{int(group, 16):x}" for group in item.exploded.split(":")) + "%lo",
        )
    ),
)
MARKS = (
    '""',
    "''",
    "``",
    "„“",
    "„”",
    "“”",
    "‘’",
    "‚‘",
    "«»",
    "»«",
    "‹›",
    "›‹",
    "「」",
    "『』",
    "｢｣",
    "《》",
    "〈〉",
    "〝〟",
)
SPOKEN = st.text(alphabet="ab éßя注5 -", min_size=1, max_size=8)
QUOTES = st.builds(lambda marks, said: marks[0] + said + marks[1], st.sampled_from(MARKS), SPOKEN)
IDS = st.one_of(st.uuids().map(str), st.emails(domains=st.just("example.com")).filter(re.compile(r"[\w.+-]+@").match))
VALUES = st.one_of(NUMBERS, TIMES, ADDRESSES, QUOTES, st.uuids().map(str))


@settings(max_examples=1_500)
@given(VALUES, VALUES, WORDS, WORDS)
@example("-5", "17", "balance", "low")
@example("Wed Jul 01 12:00:00 UTC 2026", "1782907200", "at", "x")
@example("::1", "fe80::dead:beef", "from", "x")
@example("„x“", "« y z »", "Feld", "fehlt")
@example("\u0664\u0662", "४२", "طلب", "x")
def test_a_value_in_whatever_clothes_gives_one_pattern(item: str, other: str, before: str, after: str) -> None:
    for text in (f"{before} {{}} {after}", f"{before}: {{}}", f"{before}=({{}}) {after}"):
        assert pattern(text.format(item)) == pattern(text.format(other)) == text.format("<*>").replace("(<*>)", "(<*>)")


@given(WORDS, st.tuples(WORDS, WORDS), st.tuples(WORDS, WORDS), NUMBERS.map(unsigned), NUMBERS.map(unsigned))
@example("Order", ("NotFound", "x"), ("Shipped", "x"), "5", "7")
def test_words_around_numbers_keep_errors_apart(
    first: str, words: tuple[str, str], others: tuple[str, str], number: str, other: str
) -> None:
    for text in ("{0}{n}:{1}({m}){2}", "{0}({n}){1}[{m}]{2}", "{0} {n} {1} {m} {2}", "{0}#{n}/{1}-{m}.{2}"):
        item = pattern(text.format(first, *words, n=number, m=other))
        assert (item == pattern(text.format(first, *others, n=other, m=number))) == (words == others)


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ("订单5未找到(代码7)", "订单5已发货(代码7)"),
        ("注文5が見つかりません(7)", "注文5は発送済みです(7)"),
        ("주문5를 찾을 수 없음(7)", "주문5는 배송됨(7)"),
        ("คำสั่งซื้อ5ไม่พบ(7)", "คำสั่งซื้อ5จัดส่งแล้ว(7)"),
        *((f"Order5{mark}NotFound(7)", f"Order5{mark}Shipped(7)") for mark in ":.-/+=#"),
        ("GET https://a.example.com/orders/1 failed", "GET https://a.example.com/payments/1 failed"),
        ("GET https://a.example.com/orders/1/cancel", "GET https://a.example.com/orders/1/refund"),
        ("GET https://a.example.com/orders/1", "GET https://a.example.com/orders/1/2"),
        ("GET https://a.example.com/find?order=1", "GET https://a.example.com/find?customer=1"),
        ("GET https://a.example.com/c失败", "GET https://a.example.com/c成功"),
        ("class Fee::add is abstract", "class Bee::add is abstract"),
        ("std::bad_cast", "std::bad_alloc"),
    ],
)
def test_different_errors_have_different_patterns(first: str, other: str) -> None:
    assert pattern(first) != pattern(other)


SECRETS = st.text(alphabet="xyzXÄя注ไ-_.~!$*+,;=%'()", min_size=1, max_size=12)


@given(SECRETS, SECRETS, SECRETS)
def test_a_web_address_shows_neither_user_nor_values(user: str, password: str, given_value: str) -> None:
    text = f"GET https://{user}:{password}@a.example.com/orders/4711?at={given_value}&to={password}#id={user} failed"
    assert pattern(text) == "GET https://<*>/orders/<*>?at=<*>&to=<*>#id=<*> failed"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "GET https://joe:s3cret@a.example.com:8080/orders/4711/items?x=abc&y=de#at=fg failed",
            "GET https://<*>/orders/<*>/items?x=<*>&y=<*>#at=<*> failed",
        ),
        ("GET http://localhost/orders/3f2b1c9a-11aa-4bcd-8e11-0f0f0f0f0f0f", "GET http://<*>/orders/<*>"),
        ("(jdbc:postgresql://db/shop?user=joe&password=it's)", "(jdbc:postgresql://<*>/shop?user=<*>&password=<*>"),
        ("jdbc:sqlserver://db:1433;user=sa;password=secret x", "jdbc:sqlserver://<*> x"),
        ("block blk_-1608999687919862906 of pod orders-7f8b9c6d5-xkzqp", "block <*> of pod orders-<*>"),
        ("hardware aa:bb:cc:dd:ee:ff at [::1]:9092", "hardware <*> at [<*>"),
        ("at 12/31/2025 1:05:09 AM", "at <*>/<*>/<*>"),
        ("in Market 5 on May 5", "in Market <*> on <*>"),
        ("Feld „der «alte» Preis“ fehlt; it’s 'x'", "Feld <*> fehlt; it’s <*>"),
    ],
)
def test_what_is_kept_of_a_message(message: str, expected: str) -> None:
    assert pattern(message) == expected


PIECES = (
    *("a", "Ab", "x_y", "0", "9f", "deadbeef", "com", "net", ".com", "host", "a.b", "svc", "-c", "é", "ß", "注文"),
    *"😀-.:/@+_ \t\x0b\n'\"`()<",
    *("//", "://", "<*>"),
)


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("a.b:80abc://x")
@example("to ann@b.c")
@example("x+a@b.c")
@example("blk_-1 ::1 ab:cd::1")
def test_the_first_look_at_a_place_rules_out_no_match(text: str) -> None:
    """It may rule out only what begins within a word."""
    assert signature.VARYING_2.startswith(signature.FIRST_LOOK)
    whole = re.compile(r"(?<!\w(?=\w))" + signature.VARYING_2.removeprefix(signature.FIRST_LOOK), re.ASCII)
    assert re.sub(signature.VARYING_2, "<*>", text, flags=re.ASCII) == whole.sub("<*>", text)


@pytest.mark.parametrize("begins", ["\tat ", "at ", "  at ", "\nat ", "x\n\x0bat "])
def test_a_frame_can_be_the_first_line(begins: str) -> None:
    assert signature.frame_of(f"{begins}com.acme.A.b(A.java:1)") == "com.acme.A.b"


def test_the_frame_is_the_first_that_is_not_of_a_framework() -> None:
    frames = ("java.base/java.util.A.b(A.java:1)", "app//com.acme.Tax2.of(Tax.java:7)", "com.b.C.d(C)")
    trace = "java.lang.X: a" + "".join(f"\n\tat {frame}" for frame in frames)
    assert signature.frame_of(trace) == "com.acme.Tax*.of"
    assert signature.frame_of("no trace") is None
    assert signature.frame_of(None) is None


@pytest.mark.parametrize(
    "address",
    [
        "https://h/a?x=1&amp;y=jane",
        "https://h/a?-x=jane",
        "https://h/a?\u00e4=jane",
        "https://h/a?1x=jane&b=c",
        "https://h/a?%20x=jane",
        "https://h/a?jane",
        "https://h/a;jsessionid=jane",
        "https://user:p/jane@h/x",
    ],
)
def test_no_value_of_a_query_and_no_password_is_in_a_pattern(address: str) -> None:
    pattern = signature.pattern_of(f"GET {address} failed", 2)
    assert pattern is not None
    assert "jane" not in pattern
    assert pattern.startswith("GET https://<*>")
    assert pattern.endswith(" failed")
