"""What an incident says of a replay is what a plan of it does, whatever the tables, the rules and the journal know."""

from __future__ import annotations

import html
import json
import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.commands.incidents import story
from pipelines.incidents.signature import frame_of, pattern_of
from pipelines.replay import actions, eligibility, planning, store
from pipelines.replay.choice import Choice
from pipelines.replay.client import Topic
from pipelines.replay.judge import Options
from pipelines.replay.model import Letter
from pipelines.settings import Settings, load
from pipelines.site import addresses, pages, reading
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store as put
from tests.testing.examples import at_most
from tests.testing.replays import letters_in

AT = datetime(2026, 11, 20, tzinfo=UTC)
NAME = sites.incident_id(0)
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def of(directory: Path, rules: str = "", **replay: Any) -> Settings:
    file = directory / "rules.toml"
    file.write_text(rules, encoding="utf-8")
    return load(warehouse=str(directory / "warehouse"), landing=str(directory), replay={"rules": str(file), **replay})


def with_incident(settings: Settings, letters: int, **more: Any) -> Warehouse:
    """Return a warehouse with dead letters that are all of one incident, which the table says can be replayed."""
    warehouse = letters_in(settings, letters, **more)
    signature = {"consumer_group": "billing", "original_topic": "many", "disposition": None}
    signature |= {"exception_class": "com.acme.TimeoutException", "error_pattern": pattern_of("no answer", None)}
    times = {"first_at": AT, "last_at": AT + timedelta(days=1)}
    counts = {"record_count": letters}
    row = sites.incident(0, error_frame=frame_of(None), **times, **signature, **counts)
    put(settings, "gold.dlq_incidents", row)
    return warehouse


def replayed(
    settings: Settings, *numbers: int, plan: str = "P1AN-0001", outcome: str | None = None, **more: Any
) -> None:
    """Store that a plan replayed dead letters by number, and what became of them; ``more`` replaces values of rows."""
    for number in numbers:
        letter = {"cluster": "default", "plan_id": plan, "dlq_topic": "dlq.many", "dlq_topic_id": TOPIC_ID}
        letter |= {"dlq_partition": number % 3, "dlq_offset": number // 3, "consumer_group": "billing", "attempt": 1}
        target = {"target_topic": "many", "target_topic_id": "x", "target_partition": 0, "target_offset": 99 + number}
        source = {f"original_{part}": letter[f"dlq_{part}"] for part in ("partition", "offset")}
        times = {"replayed_at": AT + timedelta(hours=number)}
        put(settings, "gold.replayed_records", letter | target | source | times | {"original_topic": "many"} | more)
        if outcome is not None:
            put(settings, "gold.replay_outcomes", letter | target | {"outcome": outcome, "looked_at": AT})


def test_an_incident_tells_what_was_replayed_and_what_a_plan_refuses(tmp_path: Path) -> None:
    settings = of(tmp_path)
    copied = {"payload_copied": lambda number: number != 4, "lossy_encoding": lambda number: number == 5}
    warehouse = with_incident(settings, 6, **copied)
    replayed(settings, 0, 1, outcome="DELIVERED")
    replayed(settings, 2, outcome="DIED_AGAIN")
    told = eligibility.of_incident(warehouse, NAME)
    assert (told.chosen, told.eligible, told.to_fetch) == (6, 2, 1)
    assert told.reasons == {"replayed_before": 3, "lossy_encoding": 1}
    plan = json.loads(actions.plan(warehouse, Choice(incident=NAME), Options(), dry_run=True, form="json").result)
    assert (plan["records"], plan["eligible"], plan["payloads_to_fetch"]) == (6, 2, 1)
    assert plan["reasons"] == told.reasons
    text = story.one(warehouse, NAME, replays=lambda name: eligibility.of_incident(warehouse, name)).result
    for line in (
        "3 records were replayed by plan P1AN-0001 on 2026-11-20 02:00:00 UTC: 2 delivered, 1 died again.",
        "A plan would replay 2 of the 6 records, as far as the tables tell: no cluster was asked.",
        "Of these 1 only if the original topic still has the payload.",
        "3 not: it, or its source record, was replayed before; --again replays it once more.",
        "1 not: the file that it came from cannot keep all bytes.",
    ):
        assert line in text
    assert "could be replayed" not in text


def test_what_another_plan_has_taken_is_not_promised(tmp_path: Path) -> None:
    settings = of(tmp_path)
    warehouse = with_incident(settings, 3)
    assert eligibility.of_incident(warehouse, NAME).eligible == 3
    draft = actions.drawn(warehouse, Choice(records=("dlq.many:0:0",)), Options(), dry_run=True)
    assert store.keep(warehouse, draft)
    with actions.Journal.of(settings) as journal:
        journal.begin(draft.plan.plan_id, "a runner")
        journal.claim(draft.plan.plan_id, draft.plan.records, again=False)
    told = eligibility.of_incident(warehouse, NAME)
    assert (told.eligible, told.reasons) == (2, {"claimed": 1})


def test_a_replay_of_the_same_source_record_for_another_group_is_no_replay_of_the_record(tmp_path: Path) -> None:
    """Two groups dead-lettered each of three records; those of one group were replayed."""
    settings = of(tmp_path)
    groups = {"consumer_group": lambda number: "billing" if number < 3 else "shipping", "original_offset": lambda _: 0}
    warehouse = with_incident(settings, 6, **groups)
    replayed(settings, 3, 4, consumer_group="shipping", original_offset=0)
    told = eligibility.of_incident(warehouse, NAME)
    assert (told.replayed, told.of_others, told.reasons) == ([], {("P1AN-0001", "shipping"): 2}, {"replayed_before": 2})
    said = "2 records were not replayed, but plan P1AN-0001 replayed the same source records as dead letters of group "
    assert told.in_words[0] == f"{said}shipping."
    assert told.as_json()["of_others"] == [{"plan": "P1AN-0001", "consumer_group": "shipping", "records": 2}]
    assert (
        "Plan P1AN-0001 replayed its source record before, as dead letter dlq.many:0:1 of group shipping, but "
        "not it itself." in actions.explain(warehouse, "dlq.many:0:0").result
    )
    assert "Plan P1AN-0001 replayed it before." in actions.explain(warehouse, "dlq.many:0:1").result
    as_json = json.loads(actions.explain(warehouse, "dlq.many:0:0", "json").result)
    assert (as_json["replayed_by"], as_json["replayed_letter"]) == ("P1AN-0001", "dlq.many:0:1")


def test_rules_that_cannot_be_read_are_said_and_no_number_is(tmp_path: Path) -> None:
    settings = of(tmp_path)
    warehouse = with_incident(settings, 3)
    Path(settings.replay.rules).unlink()
    told = eligibility.of_incident(warehouse, NAME)
    assert (told.chosen, told.eligible) == (None, None)
    assert "does not exist" in told.in_words[-1]


def test_more_records_than_a_plan_takes_are_no_number_either(tmp_path: Path) -> None:
    warehouse = with_incident(of(tmp_path, most_records=2), 3)
    assert "more records than [replay] most_records allows" in eligibility.of_incident(warehouse, NAME).in_words[-1]


def test_of_many_records_only_what_was_replayed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = of(tmp_path)
    warehouse = with_incident(settings, 6)
    replayed(settings, 0, 3, outcome="DELIVERED")
    monkeypatch.setattr(eligibility, "MOST_JUDGED", 5)
    monkeypatch.setattr(planning, "judged", None)  # nothing is judged
    told = eligibility.of_incident(warehouse, NAME)
    assert (told.chosen, told.eligible) == (None, None)
    assert told.in_words[0].startswith("2 records were replayed by plan P1AN-0001 on 2026-11-20 03:00:00 UTC")
    assert told.in_words[1] == (
        "How many records a plan would replay is not known: the incident has 6 records; "
        f"`afterlog replay plan --incident {NAME} --dry-run` judges each."
    )


RULE = '[[rule]]\nname = "r"\nerror = "*"\nthen = "HOLD"\n'


@at_most(15)
@given(
    letters=st.lists(
        st.fixed_dictionaries(
            {"payload_copied": st.booleans(), "lossy_encoding": st.booleans(), "again": st.booleans()}
        ),
        min_size=1,
        max_size=8,
    ),
    holds=st.booleans(),
)
def test_an_incident_and_its_plan_agree(
    letters: list[dict[str, bool]], holds: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = of(tmp_path_factory.mktemp("agree"), RULE if holds else "")
    columns = {name: (lambda number, name=name: letters[number][name]) for name in ("payload_copied", "lossy_encoding")}
    warehouse = with_incident(settings, len(letters), **columns)
    replayed(settings, *(number for number, row in enumerate(letters) if row["again"]))
    plan = json.loads(actions.plan(warehouse, Choice(incident=NAME), Options(), dry_run=True, form="json").result)
    told = eligibility.of_incident(warehouse, NAME)
    assert (told.chosen, told.eligible, told.reasons) == (plan["records"], plan["eligible"], plan["reasons"])
    replays = eligibility.Replays(warehouse).of_incident
    content = reading.gather(warehouse, now=AT + timedelta(days=2), replays=replays)
    assert [incident.replay for incident in content.incidents] == [tuple(told.in_words)]
    (page,) = [page for page in pages.pages(content) if page.path == addresses.incident(NAME)]
    shown = html.unescape(re.sub("<[^>]+>", "", page.text()))
    answer = story.one(warehouse, NAME, replays=replays).result
    for line in told.in_words:
        assert f"  {line}" in answer.splitlines()
        assert line in shown


@at_most(15)
@given(
    letters=st.lists(
        st.fixed_dictionaries({"original_offset": st.integers(0, 2), "lossy_encoding": st.booleans()}),
        min_size=1,
        max_size=8,
    )
)
def test_an_explanation_and_a_plan_of_all_agree(
    letters: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = of(tmp_path_factory.mktemp("agree"))
    columns = {name: (lambda number, name=name: letters[number][name]) for name in letters[0]}
    warehouse = with_incident(settings, len(letters), original_partition=lambda _: 0, **columns)
    planned = actions.drawn(warehouse, Choice(incident=NAME), Options(), dry_run=True).entries
    letters_of: dict[str | None, list[Letter]] = defaultdict(list)
    for entry in planned:
        letters_of[entry.source.coordinate].append(entry.letter)
    for entry in planned:
        told = json.loads(actions.explain(warehouse, entry.candidate.coordinate, "json").result)
        left_out = ["same_source_record"] if told["is_repeated"] else []
        assert [*told["reasons"], *left_out] == entry.reasons
        others = [record.coordinate for record in sorted(letters_of[entry.source.coordinate]) if record != entry.letter]
        assert told["of_same_source_record"] == others
    by_reasons = {bool(entry.reasons): entry for entry in planned}  # one whose record can go back, and one that cannot
    for entry in by_reasons.values():
        others_count = len(letters_of[entry.source.coordinate]) - 1
        text = actions.explain(warehouse, entry.candidate.coordinate).result
        assert ("know nothing against" in text) == (not entry.reasons)
        assert (f"{others_count} other dead letter" in text) == bool(others_count)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_plan_says_whether_the_order_per_key_can_break(is_compacted: bool, tmp_path: Path) -> None:
    warehouse = with_incident(of(tmp_path), 3)
    plan = actions.plan(warehouse, Choice(incident=NAME), Options(), dry_run=True).result
    assert "The order per key can break: they come after all that their topics hold now, so later records" in plan
    entries = actions.drawn(warehouse, Choice(incident=NAME), Options(), dry_run=True).entries
    target = Topic("many", TOPIC_ID, 3, cleanup_policy="compact" if is_compacted else "delete")
    said = planning.order(entries, Options(), {"many": target, "another": target})
    assert ("On topic many, which is compacted, a replayed record takes the place of newer" in said) == is_compacted


def test_without_keys_no_order_per_key_can_break(tmp_path: Path) -> None:
    warehouse = with_incident(of(tmp_path), 3, key=lambda _: None)
    plan = actions.plan(warehouse, Choice(incident=NAME), Options(), dry_run=True).result
    assert "No record has a key, so no order per key can break." in plan
    assert "can break:" not in plan
