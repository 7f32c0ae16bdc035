"""Labelled incident scenarios: what lands can be read, and the truth about it follows from what lands alone."""

from __future__ import annotations

import base64
import json
import re
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.scenarios import scenarios
from bench.scenarios.labels import CHANGES, HEADLESS, SHAPES, SUSPECTS, Scenario, TrueIncident
from pipelines.commands.generated_letters import PROFILES
from pipelines.incidents.verdict import REJECTION, VERDICTS
from tests.testing.builders import rows, run, warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED, MANY = 7, 62
MINUTE = 60_000
SHARED = ("header", "schema_id", "key_prefix")


@dataclass(frozen=True)
class Letter:
    """A dead letter as a stranger reads it, without the project's decoder."""

    place: tuple[str, int, int]
    at: int
    group: str | None
    topic: str
    partition: int
    offset: int
    disposition: str
    exception: str
    message: str
    frame: str
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]

    @property
    def fingerprint(self) -> tuple[str | None, ...]:
        return self.group, self.topic, self.disposition, self.exception, normalised(self.message), self.frame

    @property
    def schema_id(self) -> str | None:
        is_schema = self.value is not None and self.value[:1] == b"\0"
        return str(int.from_bytes((self.value or b"")[1:5], "big")) if is_schema else None

    def has(self, kind: str, name: str) -> bool:
        if kind == "schema_id":
            return self.schema_id == name
        if kind == "key_prefix":
            return (self.key or b"").startswith(name.encode())
        header, _, value = name.partition("=")
        return self.headers.get(header) == value.encode()


def normalised(message: str) -> str:
    """The message without quotes, e-mail addresses, hosts, times, ids and numbers; a simple rule for these messages."""
    text = re.sub(r"(?<!\w)'[^']*'|\"[^\"]*\"", "Q", message)
    text = re.sub(r"[\w.+-]+@[\w.-]+\.\w+", "EMAIL", text)
    text = re.sub(r"\b[a-z][\w-]*(\.[\w-]+)+\b(:\d+)?", "HOST", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME", text)
    return re.sub(r"[\w.:-]*\d([\w.:-]*\w)?", "N", text).replace("HOST", "N")


def read(line: str) -> Letter:
    record = json.loads(line)
    assert [*record] == ["topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers"]
    headers = {row["key"]: base64.b64decode(row["value"], validate=True) for row in record["headers"]}
    assert len(headers) == len(record["headers"])

    def text(*names: str) -> str:
        return next((headers[name].decode() for name in names if name in headers), "")

    def number(*names: str) -> int:
        value = next(headers[name] for name in names if name in headers)
        return int.from_bytes(value, "big") if "kafka_dlt-original-topic" in headers else int(value)

    prefixes = ("__dlq.errors.", "_dlq.errors.original.", "__streams.errors.", "__connect.errors.")
    own = [f"{prefix}{{}}" for prefix in prefixes] + ["kafka_dlt-original-{}"]
    trace = text(
        "__streams.errors.stacktrace", "__connect.errors.exception.stacktrace", "kafka_dlt-exception-stacktrace"
    )
    frames = re.findall(r"\n\tat (.+)", trace)
    key, value = (None if record[name] is None else base64.b64decode(record[name]) for name in ("key", "value"))
    return Letter(
        place=(record["topic"], record["partition"], record["offset"]),
        at=record["timestamp"],
        group=text("__dlq.errors.group", "_dlq.errors.original.consumer.group", "kafka_dlt-original-consumer-group")
        or None,
        topic=text(*(name.format("topic") for name in own)),
        partition=number(*(name.format("partition") for name in own)),
        offset=number(*(name.format("offset") for name in own)),
        disposition=text("_dlq.errors.disposition"),
        exception=text(
            "__streams.errors.exception", "__connect.errors.exception.class.name", "kafka_dlt-exception-fqcn"
        ).partition(": ")[0],
        message=text(
            "__dlq.errors.message",
            "__streams.errors.message",
            "__connect.errors.exception.message",
            "kafka_dlt-exception-message",
        ),
        frame=next((frame for frame in frames if re.match(r"(com\.acme|io\.payflow|de\.waren|nl\.kern)\.", frame)), ""),
        key=key,
        value=value,
        headers=headers,
    )


@cache
def made() -> tuple[Scenario, ...]:
    return tuple(scenarios(SEED, MANY))


def lines(scenario: Scenario, feed: str = "dlq") -> list[str]:
    """All lines of a feed, in the order in which they land, without dead letters that lack a mandatory header."""
    files = [(batch, name) for batch, landed in enumerate(scenario.files) for name in landed]
    files = [(batch, name) for batch, name in files if not name.endswith(HEADLESS)]
    return [line for batch, name in files if name.startswith(f"{feed}/") for line in scenario.files[batch][name]]


def letters(scenario: Scenario) -> dict[tuple[str, int, int], Letter]:
    return {letter.place: letter for letter in map(read, dict.fromkeys(lines(scenario)))}


@cache
def letters_of(number: int) -> dict[tuple[str, int, int], Letter]:
    """The letters of one of the scenarios that many tests look at."""
    return letters(made()[number])


def in_time(found: Iterable[Letter]) -> list[Letter]:
    return sorted(found, key=lambda item: item.at)


def episodes(found: Iterable[Letter]) -> list[list[Letter]]:
    """Split the letters of one fingerprint at pauses, as the definition says, with the median of the gaps so far."""
    split: list[list[Letter]] = []
    gaps: list[int] = []
    for letter in in_time(found):
        gap = letter.at - split[-1][-1].at if split else None
        median = gaps[len(gaps) // 2] if gaps else 0
        if gap is None or gap > min(max(10 * median, 30 * MINUTE), 24 * 60 * MINUTE):
            split.append([letter])
            gaps = []
        else:
            split[-1].append(letter)
            insort(gaps, gap)
    return split


def millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def test_the_same_seed_gives_the_same_bytes_whatever_the_count(tmp_path: Path) -> None:
    def landed(directory: Path, seed: int, count: int) -> dict[str, bytes]:
        for scenario in list(scenarios(seed, count))[:3]:
            for batch in range(scenario.batches):
                scenario.land(directory, batch)
        return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}

    first = landed(tmp_path / "first", 1, 3)
    assert first == landed(tmp_path / "again", 1, 5)
    assert first.keys().isdisjoint(landed(tmp_path / "other", 2, 3))
    assert not any(Path(name).name.startswith((".", "_")) for name in first)


def test_all_kinds_occur() -> None:
    truth = [fact for scenario in made() for fact in scenario.truth]
    incidents = [fact for fact in truth if not fact.noise]
    assert {incident.verdict for incident in incidents} == {*VERDICTS} - {REJECTION}
    kinds = {incident.first_suspect.kind for incident in incidents if incident.first_suspect}
    assert kinds | {"new_group"} == {*SUSPECTS}  # a new group needs a second incident to be a suspect
    assert {incident.profile for incident in incidents} == {*PROFILES}
    assert {incident.rejection for incident in incidents} == {True, False}
    assert {scenario.batches for scenario in made()} == {1, 2}
    assert any(incident.predecessor is not None for incident in incidents)
    assert any(sum(not fact.noise for fact in scenario.truth) > 1 for scenario in made())
    assert any(scenario.duplicates for scenario in made())
    feeds = {name.partition("/")[0] for scenario in made() for files in scenario.files for name in files}
    assert feeds == {"dlq", "streams-requests", "producers", "acknowledgements", "broker-logs"}


def test_names_are_unique_to_a_scenario() -> None:
    topics = [{fact.original_topic for fact in scenario.truth} for scenario in made()]
    groups = [{fact.consumer_group for fact in scenario.truth} - {None} for scenario in made()]
    assert all(len(topic) == 1 for topic in topics)
    assert len(set.union(*topics)) == MANY
    assert len(set.union(*groups)) == sum(map(len, groups))


@pytest.mark.parametrize("number", range(MANY))
def test_the_truth_counts_what_lands(number: int) -> None:
    scenario = made()[number]
    landed = letters_of(number)
    assert len(lines(scenario)) == len(landed) + scenario.duplicates
    assert sum(len(fact.places) for fact in scenario.truth) == len(
        set().union(*(fact.places for fact in scenario.truth))
    )
    assert set().union(*(fact.places for fact in scenario.truth)) == landed.keys()
    ends: dict[tuple[str, int], int] = {}
    for letter in sorted(landed.values(), key=lambda item: item.place):
        topic, partition, offset = letter.place
        assert ends.get((topic, partition), offset) == offset  # contiguous
        ends[topic, partition] = offset + 1
    for fact in scenario.truth:
        here = in_time(landed[place] for place in fact.places)
        assert (fact.records, fact.source_records) == (len(here), len({(x.partition, x.offset) for x in here}))
        assert (millis(fact.first_at), millis(fact.last_at)) == (here[0].at, here[-1].at)
        assert {(x.group, x.topic) for x in here} == {(fact.consumer_group, fact.original_topic)}
        rejects = {x.disposition == "CLIENT_REJECTED" or x.message == "Offset rejected by client." for x in here}
        assert rejects == {fact.rejection}


@pytest.mark.parametrize("number", range(MANY))
def test_incidents_are_the_episodes_of_fingerprints(number: int) -> None:
    scenario = made()[number]
    by_fingerprint = defaultdict(list)
    for letter in letters_of(number).values():
        by_fingerprint[letter.fingerprint].append(letter)
    found: set[frozenset[tuple[str, int, int]]] = set()
    before: dict[frozenset[tuple[str, int, int]], frozenset[tuple[str, int, int]]] = {}
    for same in by_fingerprint.values():
        parts = [frozenset(letter.place for letter in part) for part in episodes(same)]
        found |= {*parts}
        before |= {after: earlier for earlier, after in pairwise(parts)}
    assert found == {fact.places for fact in scenario.truth}
    for fact in scenario.truth:
        predecessor = None if fact.predecessor is None else scenario.truth[fact.predecessor].places
        assert before.get(fact.places) == predecessor


def check_verdict(item: TrueIncident, here: list[Letter], partitions: int) -> None:
    sources = {(x.partition, x.offset): x for x in here}
    keys = {x.key for x in here}
    is_copied = here[0].value is not None
    spread = Counter(partition for partition, _ in sources)
    offsets = defaultdict(list)
    for partition, offset in sorted(sources):
        offsets[partition].append(offset)
    steps = [after - before for many in offsets.values() for before, after in pairwise(many)]
    share = len(sources) / sum(many[-1] - many[0] + 1 for many in offsets.values())
    if item.verdict == "POISON_PILL":
        assert len(sources) <= 4
        assert all(step > 5 for step in steps)
    if item.verdict == "KEY_LOCAL":
        assert len(keys) <= 4 < 50 <= len(sources)
        assert None not in keys
    if item.verdict == "PARTITION_LOCAL":
        assert len(spread) == 1 < partitions
        assert share > 0.4 if not is_copied else len(keys) >= 20
    if item.verdict in ("PRODUCER_LOCAL", "SYSTEMIC", "FLOOD"):
        assert len(spread) >= 3
        assert min(spread.values()) > 5
        assert len(keys) > 20 or keys == {None}
    if item.verdict == "PRODUCER_LOCAL":
        assert share < 0.5
    if item.verdict == "SYSTEMIC":
        assert share > 0.5 or (min(steps) == 2 and share > 0.42)  # each record is a transaction
    if item.verdict == "FLOOD":
        assert here[0].disposition in ("CIRCUIT_BREAKER_ARCHIVED", "COORDINATOR_INITIATED")
    if item.verdict == "UNDETERMINED":
        assert len(sources) == len(here) >= 36
        assert len(keys) == len(here) or not is_copied or keys == {None}
        assert share < 0.05
        assert len(spread) >= 3


@pytest.mark.parametrize("number", range(MANY))
def test_verdicts_follow_from_the_dead_letters(number: int) -> None:
    scenario = made()[number]
    landed = letters_of(number)
    partitions = len({letter.partition for letter in landed.values()})
    for fact in scenario.truth:
        check_verdict(fact, in_time(landed[place] for place in fact.places), partitions)


@pytest.mark.parametrize("number", range(MANY))
def test_the_records_of_a_shared_suspect_have_it_and_earlier_ones_do_not(number: int) -> None:
    scenario = made()[number]
    landed = letters_of(number)
    for fact in scenario.truth:
        suspect = fact.first_suspect
        if fact.noise or suspect is None or suspect.kind not in SHARED:
            continue
        assert all(landed[place].has(suspect.kind, suspect.name) for place in fact.places)
        same = {landed[place].fingerprint for place in fact.places}
        others = [x for x in landed.values() if x.fingerprint not in same and x.at < millis(fact.first_at)]
        assert not any(x.has(suspect.kind, suspect.name) for x in others)
        shown = {"header": x_header(suspect.name), "schema_id": lambda x: x.schema_id, "key_prefix": lambda x: x.key}
        assert sum(shown[suspect.kind](x) is not None for x in others) >= 36


def x_header(name: str) -> Any:
    return lambda letter: letter.headers.get(name.partition("=")[0])


@pytest.mark.parametrize("number", range(MANY))
def test_groups_that_are_not_new_are_known_for_a_day(number: int) -> None:
    scenario = made()[number]
    for fact in scenario.truth:
        if fact.noise:
            continue
        first = min(other.first_at for other in scenario.truth if other.consumer_group == fact.consumer_group)
        before = (fact.first_at - first).total_seconds() / 3600
        is_new = fact.first_suspect is not None and fact.first_suspect.kind == "new_group"
        assert before < 2 if is_new else before > 24 or before == 0  # a new group


@pytest.mark.parametrize("number", range(MANY))
def test_changes_come_shortly_before_their_incidents(number: int) -> None:
    """What a stranger finds in the files of the feeds, of the last hour before an incident."""
    scenario = made()[number]
    started = [
        (at, node)
        for line in lines(scenario, "broker-logs")
        for at, node in re.findall(r"^\[(.+?),\d+\] INFO \[BrokerServer id=(\d+)\] Transition from STARTING to", line)
    ]
    landed = letters_of(number)
    stated: dict[str, int] = {}
    for told in map(json.loads, lines(scenario, "producers")):
        stated[told["client_id"]] = min(told["stated_at"], stated.get(told["client_id"], told["stated_at"]))
    headless = [
        json.loads(line)
        for landed in scenario.files
        for name, of in landed.items()
        if name.endswith(HEADLESS)
        for line in of
    ]
    assert not any("offset" in header["key"].rpartition(".")[2] for line in headless for header in line["headers"])
    for fact in scenario.truth:
        suspect, first = fact.first_suspect, millis(fact.first_at)
        if fact.noise or suspect is None:
            continue
        hour = range(first - 60 * MINUTE, first)
        if suspect.kind == "broker_restart":
            times = {node: millis(datetime.fromisoformat(f"{at}+00:00")) for at, node in started}
            near = [node for node in sorted(times, key=times.__getitem__) if times[node] in hour]
            assert near[-1] == suspect.name
        if suspect.kind == "new_client":
            assert stated[suspect.name] in hour
        if suspect.kind == "client":
            told = {}
            for sent in map(json.loads, lines(scenario, "acknowledgements")):
                told[sent["partition"], sent["offset"]] = sent["client_id"]
            own = {(landed[place].partition, landed[place].offset) for place in fact.places}
            assert {told[place] for place in own} == {suspect.name}
            dead = {(letter.partition, letter.offset) for letter in landed.values()}
            delivered = [client for place, client in told.items() if place not in dead]
            assert delivered.count(suspect.name) < len(delivered) / 2
        if suspect.kind == "missing_headers":
            times_of = [line["timestamp"] for line in headless if line["topic"] == suspect.name]
            assert times_of
            assert all(at in hour for at in times_of)


@pytest.mark.parametrize("number", range(MANY))
def test_lines_of_the_other_feeds_are_valid(number: int) -> None:
    scenario = made()[number]
    for feed in ("producers", "acknowledgements"):
        assert all(json.loads(line)["topic"] for line in lines(scenario, feed))
    for line in lines(scenario, "streams-requests"):
        assert re.match(r"\[2026-11-\d\d \d\d:\d\d:\d\d,\d{3}\] DEBUG Completed request:\{", line)
        json.loads(line.partition("request:")[2].removesuffix(" (kafka.request.logger)"))


def sent_of(scenario: Scenario) -> set[tuple[int, int]]:
    """The partitions and offsets that producers were told."""
    return {(x["partition"], x["offset"]) for x in map(json.loads, lines(scenario, "acknowledgements"))}


def is_told_of(item: TrueIncident, landed: Mapping[tuple[str, int, int], Letter], told: set[tuple[int, int]]) -> bool:
    """Tell whether all offsets from an incident's first to its last source record are acknowledged, or are markers."""
    own = sorted({(landed[place].partition, landed[place].offset) for place in item.places})
    for partition in {partition for partition, _ in own}:
        offsets = [offset for of, offset in own if of == partition]
        acknowledged = sorted(offset for of, offset in told if of == partition and offsets[0] <= offset <= offsets[-1])
        if acknowledged[:1] != offsets[:1] or any(after - before > 2 for before, after in pairwise(acknowledged)):
            return False
    return True


def test_producers_tell_of_all_messages_around_incidents_if_the_shape_says_so() -> None:
    drawn = list(scenarios(5, 10, SHAPES["transactions"]))
    told = []
    for scenario in drawn:
        landed, sent = letters(scenario), sent_of(scenario)
        told += [is_told_of(fact, landed, sent) for fact in scenario.truth if fact.source_records > 40]
    assert 0 < sum(told) < len(told)


def test_every_line_is_accepted(spark: SparkSession, empty_warehouse: Path, tmp_path: Path) -> None:
    """Five scenarios in one warehouse: none of their lines is quarantined, and changes are the suspects' alone."""
    settings = warehouse_of(empty_warehouse, tmp_path)
    whole = [
        scenario
        for scenario in made()
        if not any(name.endswith(HEADLESS) for files in scenario.files for name in files)
    ]
    few = sorted(whole, key=lambda item: sum(x.records for x in item.truth))
    late = [scenario for scenario in few if scenario.batches == 2][:2]
    pushing = [
        scenario
        for scenario in few
        if any(x.first_suspect and x.first_suspect.kind in CHANGES[:2] for x in scenario.truth)
    ]
    chosen = {named.name: named for named in (*late, *pushing[:2], *few)}.values()
    five = list(chosen)[:5]
    duplicates = 0
    for batch in range(2):
        for scenario in five:
            if batch < scenario.batches:
                scenario.land(tmp_path / "landing", batch)
        judged = run(spark, settings, "bronze.dlq_records", "silver.dlq_records")
        duplicates += sum(stage_run.duplicates for stage_run in judged.values())
    run(spark, settings, "bronze.streams_requests", "silver.topology_pushes", feed="topology")
    told = ("producers", "acknowledgements")
    run(spark, settings, *(f"{layer}.{name}" for layer in ("bronze", "silver") for name in told), feed="delivery")
    accepted = rows(spark, settings, "silver.dlq_records")
    places = {(row["dlq_topic"], row["dlq_partition"], row["dlq_offset"]) for row in accepted}
    assert places == {place for scenario in five for fact in scenario.truth for place in fact.places}
    assert len(accepted) == sum(fact.records for scenario in five for fact in scenario.truth)
    assert duplicates == sum(scenario.duplicates for scenario in five)
    for table in ("dlq_records", "topology_pushes", *told):
        assert not rows(spark, settings, f"quarantine.{table}")
    hashes = defaultdict(set)
    for row in rows(spark, settings, "silver.topology_pushes"):
        if row["error_code"] == 0:
            hashes[row["group_id"]].add(row["topology_hash"])
    blamed = [x.first_suspect for scenario in five for x in scenario.truth if x.first_suspect and not x.noise]
    changed = {named.name for named in blamed if named.kind in CHANGES[:2]}
    assert {group for group, many in hashes.items() if len(many) > 1 and "unrelated" not in group} == changed
