"""Masks of dead letters: what they hide, what they leave, and that no secret is left anywhere."""

from __future__ import annotations

import base64
import hmac
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expectations.text import visible
from pipelines.commands.coordinate import Coordinate
from pipelines.commands.show import SILVER, Letter
from pipelines.errors import UsageError
from pipelines.payloads import Masked
from pipelines.privacy import Masks
from pipelines.settings import Settings, load
from tests.unit.pipelines.commands.test_show import letter

KEY = "0123456789abcdef"
TOPIC_ID = "1yZyCpwHTlKiUsmJv1k7xQ"
OWN = {
    "name": "own",
    "headers": [
        {"name": "x-topic", "field": "original_topic", "mandatory": True},
        {"name": "x-error-*", "field": "error_message"},
        {"name": "x-group", "field": "consumer_group"},
        {"path": "$.error.text", "field": "exception_stacktrace"},
    ],
}


def masks(*rules: dict[str, Any], **settings: Any) -> Masks:
    key = {"hash_key_env": "DLQ_HASH_KEY"}
    return Masks.of(load(privacy=list(rules), privacy_key=key, **settings), {"DLQ_HASH_KEY": KEY})


def record(**more: Any) -> dict[str, Any]:
    return letter(earlier_hops=[], user_headers=[], **more)


def value_of(content: bytes, *rules: dict[str, Any], **more: Any) -> Any:
    """Return a masked value, as data if it is JSON."""
    seen = masks(*rules).record(record(value=content, **more))["value"]
    return json.loads(seen) if isinstance(seen, Masked) and seen[:1] in "{[" else seen


def hashed(secret: str) -> str:
    return f"<hashed {hmac.new(KEY.encode(), secret.encode(), 'sha256').hexdigest()[:12]}…>"


def test_without_masks_a_record_stays_as_it_is() -> None:
    its = record()
    assert Masks().record(its) == its
    assert masks({"topic": "payments", "value": True, "do": "drop"}).record(its) == its


def test_equal_values_have_equal_hashes_wherever_they_are() -> None:
    rules = [{"key": True, "do": "hash"}, {"header": "id", "do": "hash"}, {"path": "$.id", "do": "hash"}]
    its = record(key=b"4711", value=b'{"id": 4711}') | {"user_headers": [{"key": "id", "value": b"4711"}]}
    seen = masks(*rules).record(its)
    assert seen["key"] == hashed("4711")
    assert seen["user_headers"][0]["value"] == hashed("4711")
    assert json.loads(seen["value"]) == {"id": hashed("4711")}
    assert masks(*rules).record(its | {"key": b"4712"})["key"] != seen["key"]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        pytest.param(b"4111111111111234", "…1234", id="long"),
        pytest.param(b"12345678", "…5678", id="twice as long"),
        pytest.param(b"1234567", "<dropped>", id="too short"),
        pytest.param(b"\xff" * 20, "<dropped>", id="no text"),
    ],
)
def test_the_last_characters_stay_if_the_rest_is_as_long(content: bytes, shown: str) -> None:
    assert masks({"key": True, "do": "last:4"}).record(record(key=content))["key"] == shown


@pytest.mark.parametrize(
    ("path", "value", "masked"),
    [
        pytest.param("$.a.b", {"a": {"b": 1, "c": 2}}, {"a": {"b": "<dropped>", "c": 2}}, id="name"),
        pytest.param("$.a.b", {"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": "<dropped>"}] * 2}, id="name in an array"),
        pytest.param("$.a", [{"a": 1}], [{"a": "<dropped>"}], id="an array of records"),
        pytest.param("$.a[*].b", {"a": [{"b": 1}]}, {"a": [{"b": "<dropped>"}]}, id="each element"),
        pytest.param("$.a[*].b", {"a": {"b": 1}}, {"a": {"b": "<dropped>"}}, id="no array where one is meant"),
        pytest.param("$.a[*]", {"a": {"b": 1}}, {"a": {"b": "<dropped>"}}, id="each member"),
        pytest.param("$.a[1]", {"a": [1, 2]}, {"a": [1, "<dropped>"]}, id="index"),
        pytest.param("$.a[0]", {"a": 1}, {"a": "<dropped>"}, id="index of what is no array"),
        pytest.param("$['a b']", {"a b": {"c": 1}}, {"a b": "<dropped>"}, id="an object as a whole"),
        pytest.param(
            "$.customerId",
            {"customer_id": 1, "CustomerID": 2},
            dict.fromkeys(("customer_id", "CustomerID"), "<dropped>"),
            id="spelling",
        ),
        pytest.param("$.a", {"a": None}, {"a": None}, id="null"),
        pytest.param("$.a.b", {"a": 1}, {"a": 1}, id="nothing there"),
    ],
)
def test_a_path_is_read_laxly(path: str, value: Any, masked: Any) -> None:
    assert value_of(json.dumps(value).encode(), {"path": path, "do": "drop"}) == masked


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"secret", id="text"),
        pytest.param(b'{"a": "secret"', id="broken JSON"),
        pytest.param(b'{"a": "secret", "a": 1}', id="a name twice"),
        pytest.param('{"a": "secret"}'.encode("utf-16"), id="another encoding"),
        pytest.param(b"[" * 5000, id="nested too deeply"),
        pytest.param(b"\0\0\0\0\1\x0csecret", id="Avro without its schema"),
    ],
)
def test_a_path_into_what_cannot_be_read_masks_all_of_it(content: bytes) -> None:
    for do in ("drop", "last:4"):
        assert value_of(content, {"path": "$.a", "do": do}) == "<dropped>"
    payload = masks({"path": "$.a", "do": "drop"}).payload(record(value=content), "value")
    assert payload.remark == "A mask has a path, and the value cannot be read as data."
    assert value_of(content, {"path": "$.a", "do": "hash"}).startswith("<hashed ")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"original_topic": None}, id="no topic"),
        pytest.param({"original_topic_id": TOPIC_ID, "original_topic": TOPIC_ID}, id="a topic id"),
        pytest.param({"original_topic": "or\ufffders"}, id="no name of a topic"),
        pytest.param({"violations": ["original_topic.utf8"], "original_topic": "dlq.o"}, id="quarantined for it"),
        pytest.param({"undecodable_headers": ["original_topic"], "original_topic": "dlq.o"}, id="not UTF-8"),
        pytest.param({"earlier_hops": [{"topic": "orders"}], "original_topic": "dlq.o"}, id="a hop before"),
        pytest.param({"earlier_hops": [{"topic": None}], "original_topic": "dlq.o"}, id="an unknown hop before"),
    ],
)
def test_in_doubt_of_the_topic_all_masks_apply(more: dict[str, Any]) -> None:
    rule = {"topic": "orders", "key": True, "do": "drop"}
    assert masks(rule).record(record() | more)["key"] == "<dropped>"
    assert masks(rule).record(record(original_topic="dlq.o"))["key"] == b"customer-1"


def test_a_record_without_the_columns_of_its_topics_gets_all_masks() -> None:
    its = {"error_message": "secret"}
    assert masks({"topic": "orders", "error": True, "do": "drop"}).record(its) == {"error_message": "<dropped>"}


def test_errors_are_masked_in_columns_and_headers() -> None:
    named = ("__connect.errors.exception.message", "__streams.errors.exception", "springDeserializerExceptionValue")
    headers = [{"key": name, "value": b"secret"} for name in (*named, "x-error-1")]
    its = record(
        exception_stacktrace="secret",
        exception_class="a.B$C",
        exception_cause_class="secret text",
        header_profile="own",
    )
    its |= {"error_message": "secret", "user_headers": headers, "headers": headers, "raw": b"secret"}
    seen = masks({"error": True, "do": "drop"}, dlq={"profile": [OWN]}).record(its)
    assert "secret" not in repr(seen)
    assert seen["exception_class"] == "a.B$C"


TEXTS = {"error_message": "bad ada@example.org", "exception_stacktrace": "a.B.c", "exception_class": "a.B"}


@pytest.mark.parametrize(
    ("rule", "topic", "has_hops", "hidden"),
    [
        ({"error": True}, "orders", False, {"error_message", "exception_stacktrace"}),
        ({"error": True, "topic": "orders"}, "orders", False, {"error_message", "exception_stacktrace"}),
        ({"error": True, "topic": "orders"}, "payments", False, set()),
        ({"error": True, "topic": "orders"}, "payments", True, {"error_message", "exception_stacktrace"}),
        ({"error": True, "topic": "orders"}, None, False, {"error_message", "exception_stacktrace"}),
        ({"header": "x-error-text"}, "orders", False, {"error_message"}),
        ({"path": "$.error"}, "orders", False, {"exception_stacktrace"}),
        ({"value": True, "topic": "orders"}, "orders", False, {"exception_stacktrace"}),
        ({"value": True, "topic": "orders"}, "payments", False, set()),
        ({"key": True}, "orders", False, set()),
    ],
)
def test_errors_that_records_have_in_common(
    rule: dict[str, Any], topic: str | None, has_hops: bool, hidden: set[str]
) -> None:
    seen = masks({"do": "drop", **rule}, dlq={"profile": [OWN]}).error(topic, has_hops, TEXTS)
    assert {name for name, text in TEXTS.items() if seen[name] != text} == hidden
    assert seen.keys() == TEXTS.keys()


@pytest.mark.parametrize(
    ("profiles", "is_hidden"),
    [((), True), (("spring-cloud-stream",), True), (("connect",), False), (("connect", "spring-cloud-stream"), True)],
)
def test_a_masked_header_hides_errors_of_the_writers_that_write_it(profiles: tuple[str, ...], is_hidden: bool) -> None:
    seen = masks({"do": "drop", "header": "x-*"}).error("orders", False, TEXTS, profiles)
    assert (seen["error_message"] != TEXTS["error_message"]) is is_hidden


def test_hashes_are_dropped_without_a_key_where_records_are_counted() -> None:
    settings = load(privacy=[{"error": True, "do": "hash"}], privacy_key={"hash_key_env": "NOT_SET_ANYWHERE"})
    assert Masks.hiding(settings).error("orders", False, TEXTS)["error_message"] == "<dropped>"


def test_what_a_masked_header_or_path_fills_is_masked() -> None:
    its = record(value=b'{"error": {"text": "secret"}}', header_profile="own", exception_stacktrace="secret")
    its |= {"error_message": "secret", "consumer_group": "secret"}
    rules = (
        {"header": "x-error*", "do": "drop"},
        {"header": "X-GROUP", "do": "drop"},
        {"path": "$.error", "do": "hash"},
    )
    seen = masks(*rules, dlq={"profile": [OWN]}).record(its)
    assert "secret" not in repr(seen)
    assert seen["original_topic"] == "orders"
    its |= {"header_profile": "spring-kafka", "value": b"{}", "exception_stacktrace": None, "consumer_group": "g"}
    seen = masks({"header": "*message", "do": "drop"}).record(its)
    assert (seen["error_message"], seen["consumer_group"]) == ("<dropped>", "g")


def test_a_header_with_a_copy_of_the_payload_is_masked_with_it() -> None:
    its = record() | {"user_headers": [{"key": "springDeserializerExceptionValue", "value": b"secret"}]}
    for rule in ({"value": True}, {"path": "$.a"}):
        assert "secret" not in repr(masks({**rule, "do": "hash"}).record(its)["user_headers"])
    assert masks({"key": True, "do": "drop"}).record(its)["user_headers"] == its["user_headers"]


def test_copies_of_the_whole_record_are_left_out() -> None:
    its = record() | {"raw": b"secret", "input": {"value": b"secret"}}
    seen = masks({"header": "id", "do": "drop"}).record(its)
    assert (seen["raw"], seen["input"]) == (None, None)


def test_the_first_mask_decides() -> None:
    rules = ({"header": "a", "do": "last:4"}, {"header": "*", "do": "drop"})
    headers = [{"key": "a", "value": b"12345678"}, {"key": "b", "value": b"12345678"}, {"key": "c", "value": None}]
    seen = masks(*rules).record(record() | {"user_headers": headers})
    assert [header["value"] for header in seen["user_headers"]] == ["…5678", "<dropped>", None]
    paths = ({"path": "$.a.b", "do": "last:4"}, {"path": "$.a[*]", "do": "drop"})
    assert value_of(b'{"a": {"b": "12345678", "c": 1}}', *paths) == {"a": {"b": "…5678", "c": "<dropped>"}}


@pytest.mark.parametrize(
    ("environment", "why"),
    [({}, "is not set"), ({"DLQ_HASH_KEY": ""}, "is not set"), ({"DLQ_HASH_KEY": "short"}, "has fewer than 16 bytes")],
)
def test_a_hash_needs_a_key(environment: dict[str, str], why: str) -> None:
    settings: Settings = load(privacy=[{"key": True, "do": "hash"}], privacy_key={"hash_key_env": "DLQ_HASH_KEY"})
    with pytest.raises(UsageError, match=f"DLQ_HASH_KEY {why}") as raised:
        Masks.of(settings, environment)
    assert "short" not in str(raised.value)
    assert KEY not in repr(masks({"key": True, "do": "hash"}))


# No character of a hash, of a number or of what the command itself says.
SECRETS = st.text(st.characters(categories=["Lo", "So", "Sm", "Cf", "Co", "Lm"]), min_size=8, max_size=30)
DO = st.sampled_from(["drop", "hash", "last:4"])


@st.composite
def secret_records(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]]:
    """Draw a record, its masks, and the secrets that stand only where the masks look."""
    secrets = [draw(SECRETS) for _ in range(4)]
    in_value, in_key, in_header, in_error = secrets
    customer: Any = draw(
        st.sampled_from(
            [
                {"email": in_value},
                {"E_Mail": [in_value, {"deep": in_value}]},
                [{"email": in_value}, {"email": {"address": in_value}}],
                [[{"email": in_value}]],
            ]
        )
    )
    document = json.dumps({"id": 7, "customer": customer}, ensure_ascii=draw(st.booleans()))
    content = draw(
        st.sampled_from(
            [
                document.encode(),
                b"\0\0\0\0\7" + document.encode(),
                f"[{document}]".encode(),
                document[:-1].encode(),
                document.encode("utf-16"),
                f'{{"customer": "{in_value}", "customer": 1}}'.encode(),
                in_value.encode(),
                b"\0\0\0\0\7" + in_value.encode(),
            ]
        )
    )
    headers = [{"key": "X-Secret-Id", "value": in_header.encode()}, {"key": "trace", "value": b"4bf9"}]
    its = record(key=in_key.encode(), value=content, error_message=f"bad: {in_error}", exception_stacktrace=in_error)
    its |= {"user_headers": [*headers, {"key": "springDeserializerExceptionValue", "value": content}]}
    its |= {"headers": headers, "raw": document.encode(), "input": {"value": content}, "violations": []}
    its |= draw(st.sampled_from([{}, {"original_topic": None}, {"original_topic": "dlq.o", "earlier_hops": [HOP]}]))
    rules = [
        draw(st.sampled_from([{"path": "$.customer.email"}, {"path": "$.customer[*]"}, {"value": True}])),
        {"key": True},
        {"header": "x-secret-*"},
        {"error": True},
    ]
    topic = draw(st.sampled_from(["*", "ord*"]))
    return its, [{**rule, "topic": topic, "do": draw(DO)} for rule in rules], secrets


HOP = {"profile": "spring-kafka", "topic": "orders", "partition": 0, "offset": 3, "consumer_group": "g"}


def spellings(secret: str) -> set[str]:
    """The ways in which a secret can stand in an output: text, escaped, base64 at each of three places, hex."""
    content = secret.encode()
    found = {secret, visible(secret), json.dumps(secret)[1:-1], content.hex(), content.hex().upper()}
    for shift in range(3):
        # without the first and last digits, which depend on the neighbours
        found.add(base64.b64encode(bytes(shift) + content).decode().rstrip("=")[4 if shift else 0 : -4])
    return found | {secret.encode("utf-16-le").hex()}


@given(secret_records())
def test_no_masked_secret_is_in_any_output(drawn: tuple[dict[str, Any], list[dict[str, Any]], list[str]]) -> None:
    its, rules, secrets = drawn
    its = {"dlq_topic_id": None, **dict.fromkeys(COLUMNS), **its}
    these = masks(*rules)
    seen = Letter(Coordinate("dlq.orders", 0, 5), SILVER, "accepted", its, these)
    texts = [seen.as_json(), repr(these.record(its)), repr(these.payload(its, "value"))]
    for shown_as in ("auto", "text", "json", "hex"):
        texts += [seen.as_text(shown_as, full=True), seen.as_text(shown_as, full=False)]
    for text in texts:
        dump = "".join(re.findall(r"^ *[0-9a-f]{8}  ((?:[0-9a-f]{2} ?)+)", text, re.MULTILINE)).replace(" ", "")
        for secret in secrets:
            for spelling in spellings(secret):
                assert spelling not in text
                assert spelling not in dump


COLUMNS = ("exception_class", "exception_cause_class", "connector_name", "task_id", "stage", "stage_class")
COLUMNS += ("original_timestamp",)
