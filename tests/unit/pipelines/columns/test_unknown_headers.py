"""Names of headers that no profile reads: the sentences about them, and the commands that show them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from arro3.core import Array, DataType, Field, Table, list_array, struct_array
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from expectations.verdict import Outcome, Verdict, sentence_of
from pipelines.columns.unknown_headers import MOST_NAMES, nearest, sentence
from pipelines.commands import doctor
from pipelines.commands.doctor import headers, machine
from pipelines.settings import Settings, load
from pipelines.steps import held
from pipelines.warehouse.progress import Held, Progress
from pipelines.warehouse.tables import Warehouse

QUARANTINE, HELD, SILVER = "quarantine.dlq_records", "held.dlq_records", "silver.dlq_records"
AT = 1_795_100_000_000

Headers = list[tuple[str, bytes | None]]


@given(st.dictionaries(st.text(max_size=20), st.integers(1, 10**6), max_size=30))
def test_whatever_names_come_nothing_moves_a_terminal(counts: dict[str, int]) -> None:
    said = sentence(counts, 10**6)
    assert said.isprintable()
    assert said.count('" (') <= MOST_NAMES + sum(name.count('" (') for name in counts)


def test_few_names_are_shown_and_none_at_length() -> None:
    said = sentence({"n" * 5_000: 3, **{f"name {number}": 2 for number in range(50)}}, 3)
    assert len(said) < 600
    assert said.endswith(f"and {51 - MOST_NAMES} more.")
    assert sentence({}, 3) == "The 3 rows that no profile reads have no headers."


def test_the_nearest_profiles_are_named_with_what_records_lack() -> None:
    assert nearest({("spring-retry-topic", ("kafka_original-offset",)): 12}) == (
        "The nearest profile is spring-retry-topic: it lacks kafka_original-offset (12 records)."
    )
    several = {("a", ("x\x1b", "y")): 1, ("b", ("z",)): 2000, ("c", ("z",)): 1, ("d", ("z",)): 1}
    assert nearest(several) == (
        "The nearest profile is b: it lacks z (2,000 records); a: it lacks x\\u001b, y (1 record); "
        "c: it lacks z (1 record); and 1 more."
    )


def _outcome(scope: str | None, code: str = "header_profile.not_null", success: bool = False) -> Outcome:
    return Outcome(code, 20, 20, 0.05, 10, success, scope=scope, hint="Somebody else writes here.")


def test_the_gates_message_names_the_headers_and_ends_with_the_proposal() -> None:
    verdict = Verdict(SILVER, "r", 40, (_outcome("dlq.a"), _outcome("dlq.b", "x.y"), _outcome(None)))
    proposed = '[[dlq.profile]]\nname = "a"'
    said = sentence({"x-topic": 20}, 20)
    told = verdict.explained("header_profile.not_null", {"dlq.a": (said, proposed)})
    first, *others = told.outcomes
    assert [other.proposal for other in others] == ["", ""]
    assert first.hint == f"Somebody else writes here. {said}"

    message = sentence_of(SILVER, "dlq.a", [first])
    known = Progress(held={item: Held("2026-11-21T02:00:00+00:00", message, 20, "u") for item in ("a", "b")})
    for shown in (message, held.message(SILVER, known)):
        assert shown is not None
        before, _, lines = shown.partition("settings:\n")
        assert '"x-topic" (20)' in before
        assert before.count("\n") < 5
        assert lines == proposed


def acme(at: int, **others: bytes | None) -> Headers:
    """Headers that a made-up writer writes, with a user's."""
    origin = [("acme-dlq-topic", b"parcels"), ("acme-dlq-partition", b"\0\0\0\3"), ("acme-dlq-offset", b"%d" % at)]
    return [("traceparent", b"00-4bf9"), *origin, ("acme-dlq-reason", b"no anna@example.org"), *others.items()]


def zeta(at: int) -> Headers:
    """Headers that another made-up writer writes."""
    return [("ZetaSourceTopic", b"orders"), ("ZetaSourceOffset", at.to_bytes(8, "big")), ("ZetaError", b"anna is late")]


def test_the_doctor_proposes_a_profile_for_each_writer_and_says_what_it_would_do(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(settings, QUARANTINE, "dlq.parcels", [acme(at) for at in range(3)] + [acme(7, **{"a\x1b[2J": b"1"})])
    _write(settings, HELD, "dlq.parcels", [acme(at) for at in range(4, 7)])
    _write(settings, QUARANTINE, "dlq.orders", [zeta(at) for at in range(2)])
    _write(settings, HELD, "dlq.bare", [[], [("weird", b"x")]])
    _write(settings, QUARANTINE, "dlq.parcels", [[("x-elsewhere", None)]], cluster="other")
    _write(settings, QUARANTINE, "dlq.parcels", [[("x-known", None)]], profile="kip-1191")

    item, other, left = headers.check_header_profiles(Warehouse(settings))

    assert {item.state, other.state, left.state} == {"warning"}
    assert item.finding == (
        'The 7 rows of a writer that no profile reads have headers named "acme-dlq-offset" (7), '
        '"acme-dlq-partition" (7), "acme-dlq-reason" (7), "acme-dlq-topic" (7), "traceparent" (7), "a\\u001B[2J" (1). '
        "7 are in quarantine or held. Tried on 7 records of its writer, the profile acme-dlq lets 7 come in: "
        "7 with topic, partition and offset."
    )
    assert other.finding.endswith(
        "2 are in quarantine or held. Tried on 2 records of its writer, the profile zeta lets 2 come in: "
        "0 with topic, partition and offset, 2 with only a part of them."
    )
    assert "`afterlog readmit silver.dlq_records`" in (item.remedy or "")
    assert "accepted" not in (item.remedy or "").lower()
    assert left.finding == (
        'The 2 rows that no profile reads have headers named "weird" (1). They are in quarantine or held.'
    )
    assert left.snippet is None

    doctor.show([item, other, left])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "anna" not in out
    pasted = tomllib.loads(out[out.index("\n[[dlq.profile]]") :].rstrip().rpartition("\n")[0])  # a summary follows
    assert [profile["name"] for profile in pasted["dlq"]["profile"]] == ["acme-dlq", "zeta"]

    now, left = headers.check_header_profiles(
        Warehouse(settings.model_copy(update={"dlq": load(dlq=pasted["dlq"]).dlq}))
    )
    assert now.finding == "9 records in quarantine or held can be read by the profiles as they are now."
    assert "`afterlog readmit silver.dlq_records`" in (now.remedy or "")
    assert left.finding.startswith("The 2 rows")


def test_the_doctor_says_first_that_a_proposal_has_no_origin(settings: Settings) -> None:
    errors: Headers = [("acme.error.message", b"no"), ("acme.error.type", b"ValueError")]
    _write(settings, QUARANTINE, "dlq.parcels", [errors] * 3)
    (check,) = headers.check_header_profiles(Warehouse(settings))
    assert check.finding.startswith("No header shows where the records come from. ")
    assert check.finding.endswith("lets 3 come in: 0 with topic, partition and offset, 3 without an origin.")
    assert (check.snippet or "").startswith("# Without an origin: ")


def test_the_doctor_proposes_for_accepted_records_of_unknown_writers_and_says_that_they_stay(
    settings: Settings,
) -> None:
    _write(settings, SILVER, "dlq.parcels", [acme(at) for at in range(5)], profile="unknown")
    _write(settings, SILVER, "dlq.parcels", [acme(9)], profile="kip-1191")
    _write(settings, SILVER, "dlq.plain", [[("tenant", b"1"), ("x-retry-count", b"1")]], profile="unknown")
    (check,) = headers.check_header_profiles(Warehouse(settings))
    assert "5 are accepted with profile unknown. Tried on 5 records" in check.finding
    assert "Accepted rows stay as they are, also in `afterlog readmit`" in (check.remedy or "")

    pasted = load(dlq=tomllib.loads(check.snippet or "")["dlq"]).dlq
    assert [*headers.check_header_profiles(Warehouse(settings.model_copy(update={"dlq": pasted})))] == []


def test_a_value_that_names_a_known_topic_shows_the_origin(settings: Settings) -> None:
    moved: Headers = [("acme-was-in", b"parcels"), ("acme-row", b"\0\0\0\0\0\0\0\7"), ("acme-reason", b"no")]
    _write(settings, QUARANTINE, "failures", [moved] * 3)
    (check,) = headers.check_header_profiles(Warehouse(settings))
    assert "original_topic" not in (check.snippet or "").split("headers = [")[1].split("]")[0]
    _write(settings, SILVER, "dlq.parcels", [[]], profile="kip-1191", original_topic="parcels")
    (check,) = headers.check_header_profiles(Warehouse(settings))
    assert '{ name = "acme-was-in", field = "original_topic", mandatory = true }' in (check.snippet or "")
    assert '{ name = "acme-row", field = "original_offset", encoding = "int64"' in (check.snippet or "")


def test_the_doctor_names_the_nearest_profile_and_what_records_lack(settings: Settings) -> None:
    lacking: Headers = [("dead-letter-topic", b"stock"), ("dead-letter-partition", b"6"), ("dead-letter-reason", b"no")]
    _write(settings, QUARANTINE, "dlq.a", [lacking] * 2, profile="smallrye-dead-letter-queue", missing=["x"])
    proposed, near = headers.check_header_profiles(Warehouse(settings))
    assert near.finding.startswith("The nearest profile is smallrye-dead-letter-queue: it lacks dead-letter-offset")
    assert near.finding.endswith("(2 records).")
    assert "lets 2 come in: 0 with topic, partition and offset, 2 with only a part of them" in proposed.finding
    assert 'topic = "dlq.a"' in (proposed.snippet or "")  # elsewhere the shipped profile still reads its own


def test_of_many_records_a_part_of_each_topic_is_looked_at(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "MOST_LOOKED_AT", 3)
    _write(settings, QUARANTINE, "dlq.parcels", [acme(at) for at in range(9)])
    _write(settings, QUARANTINE, "dlq.orders", [zeta(1)])
    item, other = headers.check_header_profiles(Warehouse(settings))
    assert "Of 10 such records 4 were looked at." in item.finding
    assert "Tried on 1 record of its writer" in other.finding


def test_the_doctor_reads_a_warehouse_that_a_uri_names_on_this_machine(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(settings, QUARANTINE, "dlq.parcels", [acme(1)])
    by_uri = settings.model_copy(update={"warehouse": Path(settings.warehouse).as_uri()})
    monkeypatch.setattr(machine, "check_jars", lambda settings: [])
    monkeypatch.setattr(machine, "check_airflow", lambda settings: [])
    checks = {check.name: check for check in doctor.diagnose(by_uri)}
    assert "acme-dlq-topic" in (checks["header profiles"].snippet or "")
    assert "not on this machine" not in checks["tables"].finding
    assert checks["settings"].finding.endswith(f"warehouse {by_uri.warehouse}.")
    assert checks["log store"].state == "ok"


def test_the_doctor_says_nothing_where_nothing_is_unknown(settings: Settings) -> None:
    assert [*headers.check_header_profiles(Warehouse(settings))] == []
    _write(settings, QUARANTINE, "dlq.a", [[("x-known", None)]], profile="kip-1191")
    assert [*headers.check_header_profiles(Warehouse(settings))] == []


def _write(
    settings: Settings,
    table: str,
    topic: str,
    rows: Sequence[Headers],
    cluster: str = "default",
    profile: str | None = None,
    missing: Sequence[str] = (),
    original_topic: str | None = None,
) -> None:
    """Append rows with these headers to a table, without Spark."""
    ends = [sum(map(len, rows[:index])) for index in range(len(rows) + 1)]
    text, binary = DataType.string(), DataType.binary()
    pairs = struct_array(
        [
            Array([name for row in rows for name, _ in row], text),
            Array([value for row in rows for _, value in row], binary),
        ],
        fields=[Field("key", text), Field("value", binary)],
    )
    lists = list_array(Array(ends, DataType.int32()), pairs)
    lacking = list_array(
        Array([len(missing) * index for index in range(len(rows) + 1)], DataType.int32()),
        Array([*missing] * len(rows), text),
    )
    columns = {
        "_bronze_id": Array([f"{table} {topic} {profile} {place}" for place in range(len(rows))], text),
        "cluster": Array([cluster] * len(rows), text),
        "dlq_topic": Array([topic] * len(rows), text),
        "dlq_timestamp": Array([AT * 1000] * len(rows), DataType.int64()).cast(DataType.timestamp("us", tz="UTC")),
        "header_profile": Array([profile] * len(rows), text),
        "original_topic": Array([original_topic] * len(rows), text),
        "user_headers": lists,
    }
    if table != SILVER:
        columns |= {"missing_headers": lacking, "headers": lists, "error": Array([None] * len(rows), text)}
    made = Table.from_pydict(columns)
    place = Warehouse(settings).location(table)
    if not Warehouse(settings).last_version(table):
        write_deltalake(place, made.slice(0, 0), mode="append")
    write_deltalake(place, made, mode="append")
