"""Header names that no profile knows: the finding, the proposed profile, and the commands that show both."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from arro3.core import Array, DataType, Field, Table, list_array, struct_array
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from expectations.verdict import Outcome, Verdict
from pipelines.columns.unknown_headers import MOST_NAMES, proposal, sentence
from pipelines.commands import doctor
from pipelines.settings import Settings, load
from pipelines.steps import held
from pipelines.warehouse.progress import Held, Progress
from pipelines.warehouse.tables import Warehouse

QUARANTINE, HELD = "quarantine.dlq_records", "held.dlq_records"

RETRIES = {
    "x-original-topic": "original_topic",
    "x-original-partition": "original_partition",
    "x-original-offset": "original_offset",
    "x-original-timestamp": "original_timestamp",
    "x-consumer-group": "consumer_group",
    "x-retry-count": "delivery_count",
    "x-exception-class": "exception_class",
    "x-exception-message": "error_message",
    "x-exception-stacktrace": "exception_stacktrace",
    "x-failed-at": "routed_at",
}
IN_CAPITALS = {
    "originalTopic": "original_topic",
    "srcPartition": "original_partition",
    "OffsetOfSource": "original_offset",
    "retryAttempts": "delivery_count",
    "failureReason": "error_message",
    "errorType": "exception_class",
    "deadLetterTime": "routed_at",
    "groupId": "consumer_group",
}
RUN_TOGETHER = {
    "dlq_sourcetopic": "original_topic",
    "dlq_sourcepartition": "original_partition",
    "dlq_sourceoffset": "original_offset",
    "dlq_stacktrace": "exception_stacktrace",
    "KAFKA.CONNECTOR": "connector_name",
    "task-id": "task_id",
}
NOBODYS = ("traceparent", "tracestate", "b3", "content-type", "__TypeId__", "x-request-id", "x-timeout-ms")


@pytest.mark.parametrize("names", [RETRIES, IN_CAPITALS, RUN_TOGETHER], ids=["retries", "capitals", "run together"])
def test_words_of_a_name_tell_its_field(names: dict[str, str]) -> None:
    counts = dict.fromkeys([*names, *NOBODYS], 7)
    (profile,) = tomllib.loads(proposal(counts))["dlq"]["profile"]
    assert {header["name"]: header["field"] for header in profile["headers"]} == names
    assert {header["field"] for header in profile["headers"] if header.get("mandatory")} == {
        "original_topic",
        "original_partition",
        "original_offset",
    }


def test_where_the_record_came_from_goes_before_where_it_goes() -> None:
    names = {"x-retry-topic": 9, "x-dlq-topic": 9, "x-topic": 9, "x-source-offset": 9, "x-next-offset": 9}
    (profile,) = tomllib.loads(proposal(names))["dlq"]["profile"]
    assert [header["name"] for header in profile["headers"]] == ["x-topic", "x-source-offset"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["acme.fallout.topic", "acme.fallout.offset", "acme.fallout.error"], "acme-fallout", id="words"),
        pytest.param(["x-acme-source-topic", "x-acme-source-offset"], "x-acme-source", id="with an x"),
        pytest.param(["acmeTopic", "acmeErrorMessage"], "acme", id="capitals"),
        pytest.param(["x-original-topic", "x-original-offset"], "my-profile", id="tell nothing"),
        pytest.param(["acme-topic", "other-offset"], "my-profile", id="differ"),
        pytest.param(["acme-topic", "acme-offset", "error-message"], "my-profile", id="one differs"),
        pytest.param(["acme-topic"], "my-profile", id="one"),
        pytest.param(["topic", "offset"], "my-profile", id="one word each"),
        pytest.param(["spring.kafka.topic", "spring.kafka.offset"], "my-profile", id="of a built-in profile"),
        pytest.param(["a" * 70 + "-topic", "a" * 70 + "-offset"], "my-profile", id="too long"),
        pytest.param(["\u202eacme-topic", "\u202eacme-offset"], "acme", id="hostile"),
    ],
)
def test_the_profile_is_called_as_its_headers_begin(names: list[str], expected: str) -> None:
    proposed = tomllib.loads(proposal(dict.fromkeys(names, 3)))["dlq"]
    assert load(dlq=proposed).dlq.profile[0].name == expected


def test_what_is_not_in_every_record_is_not_mandatory() -> None:
    (profile,) = tomllib.loads(proposal({"topic": 9, "partition": 8, "error": 9}))["dlq"]["profile"]
    assert [header["name"] for header in profile["headers"] if header.get("mandatory")] == ["topic"]
    (profile,) = tomllib.loads(proposal({"topic": 8, "error": 9}))["dlq"]["profile"]
    assert [header["name"] for header in profile["headers"] if header.get("mandatory")] == ["error"]


def test_names_that_say_nothing_give_no_profile() -> None:
    assert proposal(dict.fromkeys(NOBODYS, 1)) == ""
    assert proposal({}) == ""
    assert sentence({}, 3) == "The 3 rows without a profile have no headers."


name = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.lists(
        st.sampled_from(
            ["x", "topic", "offset", "error", "count", "at", "\n", '"', "\\", "\u202e", "\x1b[2J", "'", "]"]
        ),
        max_size=6,
    ).map("-".join),
)


@given(st.dictionaries(name, st.integers(1, 10**6), max_size=30))
def test_whatever_names_come_the_proposal_can_be_pasted_and_nothing_moves_a_terminal(counts: dict[str, int]) -> None:
    said, lines = sentence(counts, 10**6), proposal(counts)
    assert said.isprintable()
    assert said.count('" (') <= MOST_NAMES + sum(name.count('" (') for name in counts)
    assert all(line.isprintable() for line in lines.split("\n"))
    if lines:
        pasted = load(dlq=tomllib.loads(lines)["dlq"]).dlq.profile[0]
        assert {header.name for header in pasted.headers} <= counts.keys()
        assert any(header.mandatory for header in pasted.headers)


def test_few_names_are_shown_and_none_at_length() -> None:
    said = sentence({"n" * 5_000: 3, **{f"name {number}": 2 for number in range(50)}}, 3)
    assert len(said) < 600
    assert said.endswith(f"and {51 - MOST_NAMES} more.")


def _outcome(scope: str | None, code: str = "header_profile.not_null", success: bool = False) -> Outcome:
    return Outcome(code, 20, 20, 0.05, 10, success, scope=scope, hint="Somebody else writes here.")


def test_the_gates_message_names_the_headers_and_ends_with_the_proposal() -> None:
    verdict = Verdict("silver.dlq_records", "r", 40, (_outcome("dlq.a"), _outcome("dlq.b", "x.y"), _outcome(None)))
    counts = dict.fromkeys(RETRIES, 20)
    told = verdict.explained("header_profile.not_null", {"dlq.a": (sentence(counts, 20), proposal(counts))})
    first, *others = told.outcomes
    assert [other.proposal for other in others] == ["", ""]
    assert first.hint.startswith("Somebody else writes here. The 20 rows without a profile have headers named ")

    known = Progress(held={one: Held("2026-11-21T02:00:00+00:00", _sentence(first), 20, "u") for one in ("a", "b")})
    for message in (_sentence(first), held.message("silver.dlq_records", known)):
        assert message is not None
        said, _, lines = message.partition("\n")
        assert '"x-consumer-group" (20)' in said
        assert lines == proposal(counts)


def _sentence(outcome: Outcome) -> str:
    from expectations.verdict import sentence_of

    return sentence_of("silver.dlq_records", "dlq.a", [outcome])


def test_the_doctor_names_the_headers_of_rows_without_a_profile(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(settings, QUARANTINE, [["x-original-topic", "x-original-topic", "a\x1b[2J"]] * 3 + [["x-retry-count"]])
    _write(settings, HELD, [["x-original-topic"], [], None])
    _write(settings, QUARANTINE, [["x-elsewhere"]], cluster="other")
    _write(settings, QUARANTINE, [["x-known"]], profile="kip-1191")

    (check,) = doctor._header_profiles(Warehouse(settings))

    assert check.state == "warning"
    assert check.finding == (
        'The 7 rows without a profile have headers named "x-original-topic" (4), "a\\u001B[2J" (3), '
        '"x-retry-count" (1). They are in quarantine or held.'
    )
    doctor.show([check])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    pasted = tomllib.loads(out[out.rindex("[[dlq.profile]]") :].rstrip().rpartition("\n")[0])  # a summary follows
    assert [header["field"] for header in pasted["dlq"]["profile"][0]["headers"]] == [
        "original_topic",
        "delivery_count",
    ]

    (check,) = doctor._header_profiles(Warehouse(settings.model_copy(update={"dlq": load(dlq=pasted["dlq"]).dlq})))
    assert "`afterlog readmit silver.dlq_records`" in (check.remedy or "")
    assert check.snippet is None


def test_the_doctor_reads_a_warehouse_that_a_uri_names_on_this_machine(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(settings, QUARANTINE, [["x-original-topic", "x-retry-count"]])
    by_uri = settings.model_copy(update={"warehouse": Path(settings.warehouse).as_uri()})
    monkeypatch.setattr(doctor, "_jars", lambda settings: [])
    monkeypatch.setattr(doctor, "_airflow", lambda settings: [])
    checks = {check.name: check for check in doctor.diagnose(by_uri)}
    assert "x-original-topic" in (checks["header profiles"].snippet or "")
    assert "not on this machine" not in checks["tables"].finding
    assert checks["settings"].finding.endswith(f"warehouse {by_uri.warehouse}.")
    assert checks["log store"].state == "ok"


def test_the_doctor_says_nothing_where_nothing_is_unknown(settings: Settings) -> None:
    assert [*doctor._header_profiles(Warehouse(settings))] == []
    _write(settings, QUARANTINE, [["x-known"]], profile="kip-1191")
    assert [*doctor._header_profiles(Warehouse(settings))] == []


def _write(
    settings: Settings,
    table: str,
    rows: Sequence[list[str] | None],
    cluster: str = "default",
    profile: str | None = None,
) -> None:
    """Append rows with headers of these names to a table, without Spark."""
    lists = [names or [] for names in rows]
    ends = [sum(map(len, lists[:place])) for place in range(len(lists) + 1)]
    names = [name for names in lists for name in names]
    text, binary = DataType.string(), DataType.binary()
    pairs = struct_array(
        [Array(names, text), Array([b"secret"] * len(names), binary)],
        fields=[Field("key", text), Field("value", binary)],
    )
    columns = {
        "_source": Array(["a.jsonl"] * len(rows), text),
        "_bronze_id": Array([f"{table} {cluster} {profile} {place}" for place in range(len(rows))], text),
        "cluster": Array([cluster] * len(rows), text),
        "header_profile": Array([profile] * len(rows), text),
        "error": Array([None] * len(rows), text),
        "user_headers": list_array(Array(ends, DataType.int32()), pairs),
    }
    made = Table.from_pydict(columns)
    place = Warehouse(settings).location(table)
    if not Warehouse(settings).local_version(table):
        write_deltalake(place, made.slice(0, 0), mode="append")
    write_deltalake(place, made, mode="append")
