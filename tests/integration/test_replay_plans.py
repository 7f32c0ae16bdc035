"""Plans of replays from real tables, without a cluster: what is chosen, what is eligible, which rule decides."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.commands import query
from pipelines.errors import UsageError
from pipelines.replay import actions, store
from pipelines.replay.candidates import Candidates
from pipelines.replay.choice import Choice
from pipelines.replay.judge import Options
from pipelines.replay.model import Plan, PlannedRecord, Replayed, Target
from pipelines.settings import Replay, Settings
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import AT, kip_1191, land, line, run, warehouse_of
from tests.testing.replays import no_rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60_000
EXCEEDED = "Offset delivery count exceeded the threshold."


def spring(topic: str, partition: int, offset: int, *more: tuple[str, bytes | None]) -> list[tuple[str, bytes | None]]:
    return [
        ("trace", b"\xff\x00"),
        ("kafka_dlt-original-topic", topic.encode()),
        ("kafka_dlt-original-partition", partition.to_bytes(4, "big")),
        ("kafka_dlt-original-offset", offset.to_bytes(8, "big")),
        ("kafka_dlt-original-consumer-group", b"billing"),
        ("kafka_dlt-exception-fqcn", b"com.acme.TimeoutException"),
        ("kafka_dlt-exception-message", b"no answer from 10.0.0.7:8080 after 3000 ms"),
        *more,
    ]


def letters() -> Iterator[str]:
    for offset in range(20):  # of Spring, which keeps headers
        more = (("afterlog.replay.plan", b"OLD0-0000"),) if offset == 3 else ()
        yield line(offset, key=f"k{offset % 3}".encode(), headers=spring("orders", offset % 2, offset, *more))
    for offset in range(20, 25):  # of a share group that copies
        yield line(offset, headers=kip_1191("payments", 0, offset), timestamp=AT + MINUTE)
    for offset in range(25, 28):  # of one that does not
        yield line(offset, headers=kip_1191("payments", 0, offset, message=EXCEEDED), key=None, value=None)
    yield line(28, key=b"\x00\x00\x00\x01", value=b"\x00" * 6, headers=kip_1191("orders", 0, 90))  # as a marker
    yield line(29, headers=spring("orders", 0, 4))  # the source record of offset 4 again
    yield line(30, headers=kip_1191("Nzc3Nzc3Nzc3Nzc3Nzc3Nw", 0, 1))  # an id in place of the topic's name
    yield line(31, headers=[("_dlq.errors.disposition", b"NONE")])  # quarantined
    yield line(32, headers=spring("refunds", 0, 1), value=None, key=None)


@pytest.fixture(scope="module")
def landed(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("plans"))
    land(settings, {"one.jsonl": letters()})
    run(spark, settings)
    return settings


@pytest.fixture
def warehouse(landed: Settings, tmp_path: Path) -> Callable[..., Warehouse]:
    """Return a maker of the warehouse under some rules."""

    def made(rules: str = "") -> Warehouse:
        file = tmp_path / f"rules-{len(rules)}.toml"
        file.write_text(rules, encoding="utf-8")
        return Warehouse(landed.model_copy(update={"replay": Replay(rules=str(file))}))

    return made


def reasons(warehouse: Warehouse, choice: Choice, options: Options = Options()) -> dict[int, list[str]]:  # noqa: B008
    draft = actions.drawn(warehouse, choice, options, dry_run=True, fetches=False)
    return {entry.letter.offset: sorted(entry.reasons) for entry in draft.entries}


def test_each_record_says_why_it_is_not_eligible(warehouse: Callable[..., Warehouse]) -> None:
    named = tuple(f"dlq.orders:0:{offset}" for offset in range(33))
    found = reasons(warehouse(), Choice(records=named))
    expected: dict[int, list[str]] = {offset: [] for offset in range(33)}
    expected |= {offset: ["no_payload"] for offset in (25, 26, 27)}
    expected |= {28: ["control_marker_suspected"], 4: ["same_source_record"], 30: ["topic_is_id"], 31: ["quarantined"]}
    assert found == expected


def test_another_target_takes_what_has_no_way_back(warehouse: Callable[..., Warehouse]) -> None:
    found = reasons(warehouse(), Choice(records=("dlq.orders:0:30", "dlq.orders:0:0")), Options(to="repaired"))
    assert found == {30: [], 0: []}


def test_a_dead_letter_topic_is_no_target(warehouse: Callable[..., Warehouse]) -> None:
    choice = Choice(records=("dlq.orders:0:0",))
    assert reasons(warehouse(), choice, Options(to="dlq.orders")) == {0: ["loop"]}
    assert reasons(warehouse(), choice, Options(to="dlq.other")) == {0: []}


def test_a_dry_run_says_what_it_would_take_from_the_original_topic(warehouse: Callable[..., Warehouse]) -> None:
    said = actions.plan(warehouse(), Choice(where="original_topic = 'payments'"), Options(), dry_run=True).result
    assert "8 records, of which 8 would be replayed" in said
    assert "The cluster was not asked" in said
    assert "3 payloads to take from the original topic, if it still has them" in said
    assert "user headers of 8 records to take from the original topic, if it has them" in said
    told = actions.plan(
        warehouse(), Choice(where="original_topic = 'payments'"), Options(), form="json", dry_run=True
    ).result
    assert json.loads(told)["targets"] == {"payments": None}
    said = actions.plan(
        warehouse(), Choice(where="original_topic = 'payments'"), Options(), fetches=False, dry_run=True
    ).result
    assert "8 records, of which 5 would be replayed" in said
    assert "5 records without user headers" in said


def test_headers_of_profiles_and_of_earlier_replays_do_not_go_back(warehouse: Callable[..., Warehouse]) -> None:
    draft = actions.drawn(warehouse(), Choice(records=("dlq.orders:0:3",)), Options(), dry_run=True)
    (record,) = draft.plan.records
    assert (record.topic, record.partition, record.key, record.value) == ("orders", 1, b"k0", b"v")
    assert record.headers == (("trace", b"\xff\x00"),)
    assert record.source.coordinate == "orders:1:3"


def test_records_are_in_order_of_their_source(warehouse: Callable[..., Warehouse]) -> None:
    draft = actions.drawn(warehouse(), Choice(where="original_topic = 'orders'"), Options(), dry_run=True)
    places = [(record.source.partition, record.source.offset) for record in draft.plan.records]
    assert len(places) == 20
    assert places == sorted(places)
    assert [record.position for record in draft.plan.records] == list(range(20))


def test_the_same_choice_gives_the_same_plan_and_another_option_another_one(
    warehouse: Callable[..., Warehouse],
) -> None:
    def name(options: Options = Options(), limit: int | None = None) -> str:  # noqa: B008
        choice = Choice(where="true", limit=limit)
        return actions.drawn(warehouse(), choice, options, dry_run=True).plan.plan_id

    assert name() == name()
    assert len({name(), name(Options(to="other")), name(limit=3), name(Options(max_replays=2))}) == 4


def test_an_incident_has_exactly_its_records(warehouse: Callable[..., Warehouse]) -> None:
    tables = warehouse()
    known = Candidates(tables)
    assert len(known.incidents) >= 4
    for incident in known.incidents:
        chosen = known.chosen(Choice(incident=incident["incident_id"]), 1_000)
        assert len(chosen) == incident["record_count"], incident
        assert {candidate.incident_id for candidate in chosen} == {incident["incident_id"]}
        assert {candidate.verdict for candidate in chosen} == {incident["verdict"]}


CONDITIONS = (
    "original_topic = 'orders' AND original_offset BETWEEN 3 AND 11",
    "error_message LIKE '%10.0.0.7%' OR disposition IS NULL",
    "NOT (consumer_group = 'billing') AND payload_copied",
    "consumer_group IN ('billing', 'nobody') AND dlq_offset > 17",
    "original_topic <=> NULL OR startswith(original_topic, 'pay')",
    "lower(upper(exception_class)) = 'com.acme.timeoutexception' AND length(original_topic) = 6",
    "endswith(original_topic, 'ers') AND contains(error_message, '3000 ms') AND NOT endswith(error_message, 'x')",
    "routed_at >= TIMESTAMP '2026-11-21T02:00:30Z' AND routed_at < TIMESTAMP '2026-11-21T02:00:00Z' + INTERVAL 2 HOURS",
    "routed_at < current_timestamp() - INTERVAL 1 DAY",
    "original_topic <> 'o\\'brien\" --'",
    "delivery_count = 1 AND dlq_offset <> -1",
    "key IS NULL OR value IS NOT NULL AND control_marker_suspected",
    "routed_at >= '2026-11-21T02:00:30' OR routed_at IN ('2026-11-21T02:00:00Z', NULL) OR length(key) > -1",
)


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_condition_chooses_what_spark_finds(
    text: str, spark: SparkSession, warehouse: Callable[..., Warehouse], landed: Settings
) -> None:
    chosen = Candidates(warehouse()).chosen(Choice(where=text), 1_000)
    asked = f"SELECT dlq_offset FROM silver.dlq_records WHERE {text}"
    rows = query.rows_of(Warehouse(landed, spark), asked, {}).collect()
    assert chosen or "<>" in text
    assert sorted(candidate.row["dlq_offset"] for candidate in chosen) == sorted(row["dlq_offset"] for row in rows)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = 1", "there is no column 'a'"),
        ("1 = 1; DROP TABLE x", "it is not one condition"),
        ("true) OR (true", "cannot be understood"),
        ("dlq_offset IN (SELECT 1)", "is not allowed"),
        ("error_message RLIKE 'x'", "is not allowed"),
        ("user_headers IS NULL", "conditions are on single values"),
        ("true LIMIT 3", "it is not one condition"),
        ("true UNION SELECT 1", "it is not one condition"),
        ("", "cannot be understood"),
        ("records.dlq_offset = 1", "there is no column"),
        ("error_message LIKE 'a\\\\%'", "without backslashes"),
        ("error_message = 1", "error_message = 1 cannot compare a number and a text"),
        ("lower(error_message) = 1", "cannot compare a number and a text"),
        ("5 < exception_stacktrace OR true", "cannot compare a number and a text"),
        ("consumer_group IN ('billing', 1)", "cannot compare a number and a text"),
        ("dlq_offset BETWEEN 1 AND 'billing'", "cannot compare a number and a text"),
        ("routed_at > 'banana'", "'banana' is no time"),
        ("key = 1", "cannot compare a number and bytes"),
        ("lower(dlq_offset) = '1'", "cannot take a number"),
        ("-error_message = 1", "cannot take a text"),
        ("error_message", "it is not true or false"),
        ("NOT error_message", "cannot take a text"),
        ("java_method('java.lang.System', 'exit')", "is not allowed"),
    ],
)
def test_other_conditions_are_refused_in_one_sentence(text: str, why: str, warehouse: Callable[..., Warehouse]) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        Candidates(warehouse()).chosen(Choice(where=text), 1_000)
    assert str(refused.value).count("\n") == 0
    assert "DuckDB" not in str(refused.value)
    assert "10.0.0.7" not in str(refused.value)


def test_what_duckdb_says_of_a_value_is_not_told(warehouse: Callable[..., Warehouse]) -> None:
    known = Candidates(warehouse())
    with pytest.raises(UsageError) as refused:
        known._accepted("records.error_message = 1", {"cluster": known.warehouse.cluster}, None, None)
    assert str(refused.value) == "The records cannot be chosen: DuckDB cannot answer (ConversionException)."


RULES = """
[[rule]]
name = "time-outs"
group = "bill*"
error = "*Timeout*"
topic = "orders"
then = "REPLAY"
[[rule]]
name = "refused"
disposition = "CLIENT_REJECTED"
then = "HOLD"
[[rule]]
name = "given up"
dlq_topic = "dlq.*"
then = "DISCARD"
"""


def test_the_first_rule_that_matches_decides(warehouse: Callable[..., Warehouse]) -> None:
    tables = warehouse(RULES)

    def explained(offset: int) -> dict[str, Any]:
        return dict(json.loads(actions.explain(tables, f"dlq.orders:0:{offset}", "json").result))

    assert [explained(offset)["rule"] for offset in (0, 20, 25, 32)] == ["time-outs", "refused", "given up", "given up"]
    assert explained(20)["reasons"] == ["hold"]
    assert explained(32)["reasons"] == ["discard"]
    assert "rule 1, 'time-outs', is the first that matches" in actions.explain(tables, "dlq.orders:0:0").result
    assert "there are no rules" in actions.explain(warehouse(), "dlq.orders:0:0").result
    chosen = reasons(tables, Choice(by_rules=True))
    assert set(chosen) == {*range(20), 29}
    assert reasons(tables, Choice(records=("dlq.orders:0:20",))) == {20: ["hold"]}
    assert reasons(tables, Choice(records=("dlq.orders:0:20",)), Options(ignore_rules=True)) == {20: []}


def test_a_choice_of_nothing_is_no_plan(warehouse: Callable[..., Warehouse]) -> None:
    said = actions.plan(warehouse(), Choice(where="dlq_offset > 1000"), Options(), dry_run=True)
    assert (said.result, said.exit_code) == ("No dead letter was chosen, so there is nothing to plan.", 1)


def test_a_limit_holds_for_named_records_too(warehouse: Callable[..., Warehouse]) -> None:
    named = ("dlq.orders:0:2", "dlq.orders:0:1", "dlq.orders:0:31")
    assert set(reasons(warehouse(), Choice(records=named, limit=2))) == {1, 2}
    with pytest.raises(UsageError, match=r"Nothing is known of a dead letter at dlq\.orders:0:99 in"):
        reasons(warehouse(), Choice(records=(*named, "dlq.orders:0:99")))


def test_nothing_is_replayed_that_no_rule_chose(warehouse: Callable[..., Warehouse]) -> None:
    assert reasons(warehouse(), Choice(by_rules=True)) == {}


def test_a_replayed_record_is_not_eligible_again_and_its_death_counts(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    """Any chain of replays and deaths: a record dies, is replayed, dies at its place on the target, and so on."""
    settings = warehouse_of(empty_warehouse, tmp_path, replay={"rules": no_rules(tmp_path)})
    chance = random.Random(7)
    offset = 0
    target = 100
    only = ("bronze.dlq_records", "silver.dlq_records")
    land(settings, {"0.jsonl": [line(0, headers=spring("orders", 0, 5)), line(1, headers=spring("orders", 0, 6))]})
    run(spark, settings, *only)
    tables = Warehouse(settings)
    for deaths in range(1, 4):
        most = chance.randrange(4)
        name = f"dlq.orders:0:{offset}"
        found = reasons(tables, Choice(records=(name,)), Options(max_replays=most))
        assert found[offset] == ([] if deaths - 1 <= most else ["died_after_replay"])
        draft = actions.drawn(tables, Choice(records=(name,)), Options(max_replays=9), dry_run=True)
        (record,) = draft.plan.records
        assert record.attempt == deaths
        _replayed(tables, draft.plan, record, target)
        assert reasons(tables, Choice(records=(name,)), Options(max_replays=9)) == {offset: ["replayed_before"]}
        assert reasons(tables, Choice(records=(name,)), Options(again=True, max_replays=9)) == {offset: []}
        offset = 10 + deaths
        land(settings, {f"{deaths}.jsonl": [line(offset, headers=spring("orders", 0, target))]})
        run(spark, settings, *only)
        target += 1
    assert reasons(tables, Choice(records=("dlq.orders:0:1",))) == {1: []}


def _replayed(tables: Warehouse, plan: Plan, record: PlannedRecord, offset: int) -> None:
    """Write what a run writes for a record that stands on its target."""
    named = Plan(
        plan.plan_id,
        plan.plan_hash,
        plan.cluster,
        "",
        plan.created_at,
        (Target("orders", "an-id", (0,)),),
        plan.records,
    )
    kept = store.Replays(tables, named)
    kept.add([Replayed(record, 0, offset, AT)])
    kept.flush()
    kept.add([Replayed(record, 0, offset, AT)])  # what a resumed run finds once more
    kept.flush()
    assert len(store.replayed(tables, plan.plan_id)) == 1


def test_discarding_deletes_nothing_and_holds_until_asked(
    warehouse: Callable[..., Warehouse], landed: Settings, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(landed.warehouse, tmp_path / "copy")
    tables = Warehouse(warehouse().settings.model_copy(update={"warehouse": str(tmp_path / "copy")}))
    choice = Choice(records=("dlq.orders:0:7", "dlq.orders:0:31"))
    assert actions.discard(tables, choice, "a test").result.startswith("2 records of 2 discarded now")
    assert actions.discard(tables, choice, None).result.startswith("0 records of 2 discarded now")
    assert reasons(tables, Choice(records=("dlq.orders:0:7",))) == {7: ["discarded"]}
    assert reasons(tables, Choice(records=("dlq.orders:0:7",)), Options(again=True)) == {7: []}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fix.sql", "SELECT record, 'v2:' || value_text AS value, headers FROM records WHERE dlq_offset <> 2"),
        ("all.sql", "SELECT * REPLACE ('v2:' || value_text AS value) FROM records WHERE dlq_offset <> 2"),
        ("capitals.sql", "SELECT RECORD, 'v2:' || value_text AS VALUE FROM records WHERE dlq_offset <> 2"),
        (
            "fix.py",
            "def transform(records):\n"
            "    records['value'] = ['v2:' + text for text in records['value_text']]\n"
            "    return records[records['dlq_offset'] != 2][['record', 'value', 'headers']]\n",
        ),
    ],
)
def test_a_transform_repairs_records_and_is_part_of_the_plan(
    name: str, text: str, warehouse: Callable[..., Warehouse], tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    choice = Choice(where="original_topic = 'orders' AND dlq_offset < 4")
    draft = actions.drawn(warehouse(), choice, Options(), file=file, dry_run=True)
    plain = actions.drawn(warehouse(), choice, Options(), dry_run=True)
    assert draft.plan.plan_hash != plain.plan.plan_hash
    assert [entry.letter.offset for entry in draft.entries if entry.reasons == ["left_out"]] == [2]
    assert [(record.key, record.value, record.headers) for record in draft.plan.records] == [
        (record.key, b"v2:v", record.headers) for record in plain.plan.records if record.letter.offset != 2
    ]
    said = actions.plan(warehouse(), choice, Options(), file=file, dry_run=True).result
    assert "value  - v\n           + v2:v" in said


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("x.sql", "SELECT 1 AS one FROM records", "must return the column record"),
        ("x.sql", "DROP TABLE records", "it must be one SELECT"),
        ("x.sql", "SELECT * FROM read_csv('/etc/passwd')", "DuckDB answers PermissionException"),
        ("x.sql", "SELECT record, error(value_text) AS value FROM records", "DuckDB answers InvalidInputException"),
        ("x.sql", "SELECT record FROM records UNION ALL SELECT record FROM records", "twice"),
        ("x.sql", "SELECT 'other' AS record", "a record that it was not given"),
        ("x.sql", "SELECT record, 5 AS value FROM records", "value is of type int"),
        ("x.py", "def transform(records):\n    raise ValueError(records.value_text[0])", "ValueError in line 2"),
        ("x.py", "x = 1", "KeyError"),
        ("x.py", "def transform(records):\n    return 5", "must return a DataFrame"),
        ("x.py", "def transform(records):\n    raise SystemExit(3)", "SystemExit in line 2"),
        ("x.py", "def transform(records):\n    return records.assign(record=[[1]])", "a record that it was not given"),
        ("x.py", "def transform(records):\n    return records.assign(headers=[[(b'x', b'1')]])", "must be text"),
        ("x.sql", "SELECT record, [{'key': NULL, 'value': key}] AS headers FROM records", "must be text"),
        ("x.txt", "", "must be a file .sql or .py"),
    ],
)
def test_a_transform_that_fails_is_one_sentence_without_a_payload(
    name: str, text: str, why: str, warehouse: Callable[..., Warehouse], tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=why) as refused:
        actions.drawn(warehouse(), Choice(records=("dlq.orders:0:0",)), Options(), file=file, dry_run=True)
    assert "v2" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_masks_hide_payloads_that_a_plan_shows(warehouse: Callable[..., Warehouse], tmp_path: Path) -> None:
    file = tmp_path / "fix.sql"
    file.write_text("SELECT record, 'canary-' || value_text AS value FROM records", encoding="utf-8")
    from pipelines.settings import Mask

    settings = warehouse().settings.model_copy(update={"privacy": (Mask(value=True, do="drop"),)})
    choice = Choice(records=("dlq.orders:0:0",))
    said = actions.plan(Warehouse(settings), choice, Options(), file=file, dry_run=True).result
    assert "canary" not in said
    assert "<dropped>" in said
