"""Plans of many dead letters and what becomes of plans, on real Delta tables, without a cluster and without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from expectations.contract import contract_of
from pipelines.errors import UsageError
from pipelines.incidents.signature import frame_of, pattern_of
from pipelines.replay import actions, store
from pipelines.replay.accepted import INCIDENTS
from pipelines.replay.candidate import Candidate
from pipelines.replay.candidates import Candidates
from pipelines.replay.choice import Choice
from pipelines.replay.draft import Draft
from pipelines.replay.journal import Journal, journal_store
from pipelines.replay.judge import Options
from pipelines.replay.model import Plan, Replayed, Target
from pipelines.replay.rules import read
from pipelines.replay.runners import alone
from pipelines.replay.states import State
from pipelines.settings import Mask, Settings, load
from pipelines.warehouse import append
from pipelines.warehouse.tables import Warehouse
from tests.testing.replays import letters_in

AT = datetime(2026, 11, 20, tzinfo=UTC)
RULES = """
[[rule]]
name = "what one key breaks"
verdict = "KEY_LOCAL"
then = "REPLAY"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES, encoding="utf-8")
    return load(
        warehouse=str(tmp_path / "warehouse"),
        landing=str(tmp_path),
        replay={"rules": str(rules), "most_records": 40},
        kafka={"bootstrap_servers": "127.0.0.1:1"},
    )


def of_time_outs(settings: Settings, records: int) -> dict[str, Any]:
    """An incident of dead letters of the group billing that ran out of time."""
    incident: dict[str, Any] = dict.fromkeys(column.name for column in contract_of(INCIDENTS).stored)
    incident |= {"cluster": settings.cluster, "incident_id": "7KQ2-MD4X", "consumer_group": "billing"}
    incident |= {"original_topic": "many", "exception_class": "com.acme.TimeoutException", "record_count": records}
    incident |= {"error_pattern": pattern_of("time-out", None), "error_frame": frame_of(None), "verdict": "KEY_LOCAL"}
    return incident | {"first_at": AT, "last_at": AT, "sentence": "x"}


def test_a_limit_helps_where_more_records_are_looked_at_than_a_plan_may_have(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tenth of 300 dead letters is of an incident that is large in itself; pages of 25 are read one by one."""
    monkeypatch.setattr("pipelines.replay.candidates.PAGE", 25)
    warehouse = letters_in(
        settings, 300, error_message=lambda number: "time-out" if number % 2 else "refused", stage=lambda _: "x"
    )
    incident = of_time_outs(settings, 150)
    append.append(warehouse, contract_of(INCIDENTS), [incident])
    known = Candidates(warehouse, read(Path(settings.replay.rules)))
    for choice in ({"incident": "7KQ2-MD4X"}, {"by_rules": True}):
        found = known.chosen(Choice(**choice, limit=30), 40)  # type: ignore[arg-type]
        assert len(found) == 30
        assert {item.row["error_message"] for item in found} == {"time-out"}
        assert len({candidate.coordinate for candidate in known.chosen(Choice(**choice), 150)}) == 150  # type: ignore[arg-type]
        for limit in (None, 41):
            with pytest.raises(UsageError, match=r"more records than \[replay\] most_records allows \(40\)"):
                known.chosen(Choice(**choice, limit=limit), 40)  # type: ignore[arg-type]


def test_why_a_record_without_an_incident_waits_is_said(settings: Settings) -> None:
    more = '[[rule]]\nname = "all else"\nthen = "REPLAY"\n'
    Path(settings.replay.rules).write_text(RULES.replace("REPLAY", "HOLD") + more, encoding="utf-8")
    warehouse = letters_in(settings, 1)
    assert (
        "REVIEW: rule 1, 'what one key breaks', looks at the verdict of an incident, and the record is of none yet"
        in (actions.explain(warehouse, "dlq.many:0:0").result)
    )
    assert Candidates(warehouse, read(Path(settings.replay.rules))).chosen(Choice(by_rules=True), 40) == []


def kept(warehouse: Warehouse, where: str = "true") -> Draft:
    draft = actions.drawn(warehouse, Choice(where=where), Options(to="elsewhere"), dry_run=True)
    store.keep(warehouse, draft)
    return draft


def test_what_has_ended_cannot_be_paused(settings: Settings) -> None:
    warehouse = letters_in(settings, 3)
    plan = kept(warehouse).plan.plan_id
    assert actions.ask_cancel(warehouse, plan).exit_code == 0
    answer = actions.ask_pause(warehouse, plan)
    assert answer.result == f"Plan {plan} is cancelled already, so there is nothing to pause."
    assert answer.exit_code == 1


def test_a_plan_without_an_eligible_record_ends_at_once(settings: Settings) -> None:
    warehouse = letters_in(settings, 3, lossy_encoding=lambda _: True)
    draft = kept(warehouse)
    assert draft.plan.records == ()
    answer = actions.run(warehouse, draft.plan.plan_id)
    assert (answer.exit_code, "has no eligible record" in answer.result) == (0, True)


def test_the_status_of_a_run_tells_what_stands_though_it_is_not_in_the_table_yet(settings: Settings) -> None:
    warehouse = letters_in(settings, 3)
    draft = kept(warehouse)
    plan, records = draft.plan.plan_id, draft.plan.records
    with Journal(journal_store(warehouse.settings), settings.cluster) as journal:
        journal.begin(plan, "a runner")
        assert journal.claim(plan, records, again=False) == list(records)
        journal.confirm(plan, records[:2], 2, 0)
        assert journal.status(plan).state is State.READY  # type: ignore[union-attr]  # its runner died
    told = json.loads(actions.status(warehouse, plan, "json", asks=False).result)
    assert (told["replayed"], told["eligible"]) == (2, 3)
    paused = actions.ask_pause(warehouse, plan).result
    assert paused == f"Plan {plan} is paused; `afterlog replay resume {plan}` goes on."


def test_a_dead_letter_whose_source_record_another_plan_has_taken_is_claimed(settings: Settings) -> None:
    """Two groups dead-lettered each of three records to one topic."""
    warehouse = letters_in(
        settings,
        6,
        dlq_offset=lambda number: number,
        original_partition=lambda number: number % 3,
        original_offset=lambda _: 7,
        consumer_group=lambda number: "billing" if number < 3 else "shipping",
    )
    draft = kept(warehouse, "consumer_group = 'billing'")
    with Journal(journal_store(warehouse.settings), settings.cluster) as journal:
        journal.claim(draft.plan.plan_id, draft.plan.records[:1], again=False)
    choice = Choice(where="consumer_group = 'shipping'")
    found = actions.drawn(warehouse, choice, Options(to="elsewhere"), dry_run=True).entries
    assert [item.reasons for item in found] == [["claimed"], [], []]
    said = actions.plan(warehouse, choice, Options(to="elsewhere"), dry_run=True).result
    assert "another plan has taken it, or its source record: cancel that plan" in said


def test_an_explanation_names_all_that_a_plan_would(settings: Settings) -> None:
    """One dead letter of a plan that runs, and one whose original topic is a DLQ topic."""
    warehouse = letters_in(settings, 2, original_topic=lambda number: ("many", "dlq.many")[number])
    plan = kept(warehouse, "dlq_partition = 0").plan
    with Journal(journal_store(warehouse.settings), settings.cluster) as journal:
        journal.claim(plan.plan_id, plan.records, again=False)
    for partition, reasons in enumerate((["claimed"], ["loop"])):
        place = f"dlq.many:{partition}:0"
        (planned,) = actions.drawn(warehouse, Choice(records=(place,)), Options(), dry_run=True).entries
        explained = json.loads(actions.explain(warehouse, place, "json").result)
        assert explained["reasons"] == planned.reasons == reasons
        assert "know nothing against" not in actions.explain(warehouse, place).result


def test_a_plan_of_another_cluster_takes_nothing(settings: Settings) -> None:
    """Two clusters in one warehouse have dead letters at the same places, of source records at the same places."""
    east, west = (letters_in(settings.model_copy(update={"cluster": name}), 3) for name in ("east", "west"))
    plan = kept(east).plan
    with Journal(journal_store(east.settings), "east") as journal:
        journal.claim(plan.plan_id, plan.records, again=False)
    assert actions.drawn(east, Choice(where="true"), Options(again=True), dry_run=True).reasons == {}
    for warehouse, reasons in ((east, {"claimed": 3}), (west, {})):
        assert actions.drawn(warehouse, Choice(where="true"), Options(), dry_run=True).reasons == reasons


def test_what_lands_while_dead_letters_are_looked_at_gives_none_twice(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run beside the command lands dead letters that come first in the order, after each page."""
    monkeypatch.setattr("pipelines.replay.candidates.PAGE", 25)
    rules = Path(settings.replay.rules)
    rules.write_text('[[rule]]\nname = "all"\nthen = "REPLAY"\n', encoding="utf-8")
    warehouse = letters_in(settings, 100)
    looked_at = Candidates._known

    def landing(self: Candidates, *arguments: Any) -> list[Candidate]:
        letters_in(settings, 6, dlq_topic=lambda _: "dlq.first")
        return looked_at(self, *arguments)

    monkeypatch.setattr(Candidates, "_known", landing)
    found = [
        candidate.coordinate for candidate in Candidates(warehouse, read(rules)).chosen(Choice(by_rules=True), 1_000)
    ]
    assert len(found) == len(set(found)) == 100


def test_two_processes_that_complete_one_plan_write_each_record_once(settings: Settings) -> None:
    """A run was killed before it wrote down what stands; `replay status` twice, or a run, do it at the same moment."""
    warehouse = letters_in(settings, 3)
    plan = with_target(kept(warehouse).plan)
    both = [store.Replays(warehouse, plan) for _ in range(2)]
    for item in both:
        item.add([Replayed(record, 0, record.position, 0) for record in plan.records])
    for item in both:
        item.flush()
    assert len(store.replayed(warehouse, plan.plan_id)) == 3


def with_target(plan: Plan) -> Plan:
    """Return a plan of a dry run with its target, as one has that asked the cluster."""
    return replace(plan, targets=(Target("elsewhere", "an-id", (0,)),))


def test_a_plan_whose_records_another_plan_had_taken_can_be_run_once_they_are_free(settings: Settings) -> None:
    warehouse = letters_in(settings, 3)
    first, second = kept(warehouse, "consumer_group = 'billing'").plan, kept(warehouse).plan
    with Journal(journal_store(warehouse.settings), settings.cluster) as journal:
        journal.begin(first.plan_id, "a runner")
        assert journal.claim(first.plan_id, first.records, again=False) == list(first.records)
        journal.begin(second.plan_id, "another runner")
        assert journal.claim(second.plan_id, second.records, again=False) == []
        journal.confirm(second.plan_id, [], 0, 3)
        journal.end(second.plan_id, "another runner", State.FINISHED)
        told = actions.status(warehouse, second.plan_id, asks=False).result
        assert "3 not replayed, as another plan has taken them" in told
        journal.release(first.plan_id, first.records)
        assert kept(warehouse).plan.plan_id == second.plan_id
        assert journal.revive(second.plan_id) is State.FINISHED
        assert journal.status(second.plan_id).state is State.READY  # type: ignore[union-attr]


def test_an_attempt_counts_replays_by_all_plans_of_the_source_record(settings: Settings) -> None:
    """Two groups dead-lettered one record; each group's dead letter is replayed, and then the first one again."""
    warehouse = letters_in(
        settings,
        2,
        dlq_offset=lambda number: number,
        original_partition=lambda _: 0,
        original_offset=lambda _: 7,
        consumer_group=lambda number: ("billing", "shipping")[number],
    )
    attempts = []
    for at, group in enumerate(("billing", "shipping", "billing")):
        choice = Choice(where=f"consumer_group = '{group}'")
        plan = with_target(actions.drawn(warehouse, choice, Options(to="elsewhere", again=True), dry_run=True).plan)
        kept_now = store.Replays(warehouse, plan)
        kept_now.add([Replayed(plan.records[0], 0, at, 0)])
        kept_now.flush()
        attempts.append(plan.records[0].attempt)
    assert attempts == [1, 2, 3]


def test_two_dead_letters_that_began_as_one_record_go_back_once(settings: Settings) -> None:
    """Two groups have retry topics of their own; the headers of both name the record before them."""
    hop = {"profile": "spring-kafka", "topic": "orders", "partition": 0, "offset": 7, "consumer_group": "billing"}
    warehouse = letters_in(settings, 3, earlier_hops=lambda number: [hop] if number else [])
    found = actions.drawn(warehouse, Choice(where="true"), Options(to="repaired"), dry_run=True)
    assert sorted(entry.reasons for entry in found.entries) == [[], [], ["same_source_record"]]


@pytest.mark.parametrize("ignores_rules", [False, True])
def test_what_a_plan_discards_does_not_change_it(ignores_rules: bool, settings: Settings) -> None:
    (Path(settings.replay.rules)).write_text(
        '[[rule]]\nname = "r"\nerror = "*odd*"\nthen = "DISCARD"\n', encoding="utf-8"
    )
    warehouse = letters_in(settings, 4, error_message=lambda number: "odd" if number % 2 else "even")
    options = Options(ignore_rules=ignores_rules)
    first = actions.drawn(warehouse, Choice(where="true"), options, dry_run=True)
    by_rules = actions.drawn(warehouse, Choice(where="true"), Options(), dry_run=True)
    assert store.keep(warehouse, by_rules)
    again = actions.drawn(warehouse, Choice(where="true"), options, dry_run=True)
    assert again.plan.plan_hash == first.plan.plan_hash
    assert len(again.eligible) == (4 if ignores_rules else 2)


def test_an_incident_gives_one_plan_however_it_is_named(settings: Settings) -> None:
    warehouse = letters_in(settings, 3, error_message=lambda _: "time-out", stage=lambda _: "x")
    incident = of_time_outs(settings, 3)
    taken_in = incident | {"incident_id": "9AAA-0000", "record_count": 0, "merged_into": "7KQ2-MD4X"}
    append.append(warehouse, contract_of(INCIDENTS), [incident, taken_in])

    plans = [
        actions.drawn(warehouse, Choice(incident=name), Options(), dry_run=True).plan
        for name in ("7KQ2-MD4X", "7kq2-md4x", "7KQ2", "9AAA-0000")
    ]

    assert {plan_.plan_id for plan_ in plans} == {plans[0].plan_id}
    assert len(plans[0].records) == 3


def test_a_plan_by_rules_expires_if_the_rules_do_not_replay_a_record_any_more(settings: Settings) -> None:
    """The incident was local to a key when the plan was made, and fails for all when it is run: no rule matches."""
    warehouse = letters_in(settings, 3, error_message=lambda _: "time-out", stage=lambda _: "x")
    incident = of_time_outs(settings, 3)
    append.append(warehouse, contract_of(INCIDENTS), [incident])
    plans = {}
    for choice in (Choice(by_rules=True), Choice(where="true")):
        draft = actions.drawn(warehouse, choice, Options(), dry_run=True)
        store.keep(warehouse, draft)
        plans[choice.by_rules] = draft.plan.plan_id
        assert actions.left(warehouse, draft.plan.plan_id).exit_code == 0
    append.append(warehouse, contract_of(INCIDENTS), [incident | {"verdict": "SYSTEMIC"}], "overwrite")
    told = actions.left(warehouse, plans[True])
    assert "has expired: dlq.many:0:0 is not eligible any more, as no rule replays it" in told.result
    assert actions.left(warehouse, plans[False]).exit_code == 0


@pytest.mark.parametrize(
    ("mask", "text", "hides"),
    [
        (Mask(path="$.email", do="drop"), "json_extract_string(value_text, '$.email') AS key", True),
        (Mask(path="$.email", do="drop"), "replace(value_text, 'email', 'user') AS value", True),
        (Mask(path="$.email", do="drop"), "'{\"all\":' || to_json(value_text) || '}' AS value", True),
        (Mask(path="$.email", do="drop"), "replace(value_text, 'null', '\"EUR\"') AS value", False),
        (Mask(value=True, do="drop"), "upper(json_extract_string(value_text, '$.email')) AS key", True),
        (Mask(key=True, do="drop"), "'for ' || key_text AS value", True),
        (Mask(header="trace", do="drop"), "headers[1].value AS key", True),
        (Mask(header="trace", do="drop"), "'v2' AS key", False),
    ],
)
def test_masks_hide_what_a_transform_moves(
    mask: Mask, text: str, hides: bool, settings: Settings, tmp_path: Path
) -> None:
    warehouse = letters_in(
        settings.model_copy(update={"privacy": (mask,)}),
        1,
        key=lambda _: b"customer-4711",
        value=lambda _: b'{"email":"alice@example.com","currency":null}',
        user_headers=lambda _: [("trace", b"canary-1")],
    )
    file = tmp_path / "fix.sql"
    file.write_text(f"SELECT record, {text} FROM records", encoding="utf-8")
    said = actions.plan(warehouse, Choice(where="true"), Options(), file=file, dry_run=True).result
    after = next(line for line in said.splitlines() if line.lstrip().startswith("+ "))
    assert after.endswith("+ <dropped>") == hides
    assert not any(word in after.lower() for word in ("alice@example", "4711", "canary"))


def test_the_status_of_a_plan_that_another_process_completes_is_told(settings: Settings) -> None:
    """The run that ended was killed before it wrote down what stands, and `replay status` is asked twice at once."""
    warehouse = letters_in(settings, 3)
    plan = kept(warehouse).plan
    place = journal_store(warehouse.settings)
    with Journal(place, settings.cluster) as journal:
        journal.begin(plan.plan_id, "a runner")
        journal.claim(plan.plan_id, plan.records, again=False)
        journal.confirm(plan.plan_id, plan.records, 3, 0)
        journal.end(plan.plan_id, "a runner", State.FINISHED)
    with alone(place, plan.plan_id):
        told = actions.status(warehouse, plan.plan_id)
    assert "3 of 3 records replayed" in told.result
    assert f"Another process runs plan {plan.plan_id}" in told.remarks[0]


def test_a_transform_repairs_dead_letters_of_topics_that_followed_each_other(
    settings: Settings, tmp_path: Path
) -> None:
    """A DLQ topic was deleted and created again, so that two dead letters have one place."""
    ids = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")
    same = {f"{of}_{part}": (lambda _: 0) for of in ("dlq", "original") for part in ("partition", "offset")}
    topics = {"dlq_topic_id": lambda number: ids[number], "original_topic": lambda number: f"orders-{number}"}
    warehouse = letters_in(settings, 2, **same, **topics)
    file = tmp_path / "repair.sql"
    file.write_text("SELECT record, 'v' || value_text AS value FROM records", encoding="utf-8")
    plan = actions.drawn(warehouse, Choice(where="true"), Options(), file=file, dry_run=True).plan
    assert [(record.letter.topic_id, record.value) for record in plan.records] == [(ids[0], b"v0"), (ids[1], b"v1")]


def test_a_dry_run_does_not_try_a_transform_on_payloads_that_it_does_not_have(
    settings: Settings, tmp_path: Path
) -> None:
    none = lambda _: None  # noqa: E731
    warehouse = letters_in(
        settings, 3, payload_copied=lambda number: number == 0, key=none, value=lambda n: None if n else b"a fish"
    )
    files = {
        "fix.sql": "SELECT record, 'v2' AS value FROM records WHERE value_text LIKE '%fish%'",
        "fix.py": "def transform(records):\n"
        "    records['value'] = ['v2' for text in records.value_text if text.strip()]\n"
        "    return records[['record', 'value']]\n",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        said = actions.plan(warehouse, Choice(where="true"), Options(), file=file, dry_run=True).result
        assert "3 records, of which 3 would be replayed" in said
        assert f"Transform {name} changes 1 record\n" in said
        assert "It was not tried on 2 records whose payload is to be taken first." in said
