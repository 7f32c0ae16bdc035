"""Chosen dead letters -> a plan: what is eligible and why not, what is produced, in which order, where to."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pipelines import moments
from pipelines.columns.profiles import PROFILES, SHARE_GROUP
from pipelines.errors import UsageError
from pipelines.incidents import ids
from pipelines.kafka.errors import named
from pipelines.replay import judge, origins
from pipelines.replay.candidate import Candidate
from pipelines.replay.draft import Draft, Entry
from pipelines.replay.judge import Options
from pipelines.replay.model import Headers, Letter, Plan, Source, Target, attempt_of
from pipelines.replay.rules import Rules
from pipelines.replay.transform import Content, Transform
from pipelines.settings import Settings
from pipelines.stores import restored
from pipelines.teams import Teams
from pipelines.text import iso
from pipelines.warehouse.actions import account

if TYPE_CHECKING:
    from pipelines.replay.client import Topic
    from pipelines.replay.fetch import Fetched
    from pipelines.replay.journal import Journal
    from pipelines.warehouse.tables import Warehouse


def judged(candidates: Iterable[Candidate], rules: Rules, options: Options) -> list[Entry]:
    """Return the entries of candidates with the reasons that need no cluster."""
    entries = []
    for candidate in candidates:
        action, rule = rules.decide(candidate.facts)
        reasons = judge.of_record(candidate, action, options)
        entry = Entry(candidate, action, rule.name if rule else None, reasons, options.target_of(candidate))
        if options.to is None and not candidate.row["original_topic_id"]:
            entry.partition = candidate.row["original_partition"]
        row = candidate.row
        headers = entry.own(origins.headers_of(row))
        entry.first = candidate.first
        entry.content = entry.before = Content(_bytes(row["key"]), _bytes(row["value"]), headers)
        entries.append(entry)
    return entries


def leave_out_repeated(entries: Sequence[Entry]) -> None:
    """Let only the latest dead letter of each record go to a target, also of those that name a retry of it."""
    latest: dict[tuple[Any, ...], Entry] = {}
    oldest = datetime.min.replace(tzinfo=UTC)
    for entry in entries:
        source = entry.written_first
        if entry.reasons or source is None:
            continue
        before = latest.get((source, entry.topic))
        if before is not None:
            pair = sorted(
                (before, entry), key=lambda either: (either.candidate.row["routed_at"] or oldest, either.letter)
            )
            pair[0].reasons.append("same_source_record")
            latest[source, entry.topic] = pair[1]
        else:
            latest[source, entry.topic] = entry


def leave_out_beyond_limits(entries: Sequence[Entry], teams: Teams) -> None:
    """Let only the first records, in the plan's order, of each team go that allows so many in one plan."""
    for name, most in teams.most_records().items():
        own = (entry for entry in entries if not entry.reasons and name in entry.candidate.teams)
        for entry in sorted(own, key=_order)[most:]:
            entry.reasons.append("team_most")


def is_repeated(entry: Entry, others: Iterable[Entry]) -> bool:
    """Tell whether a plan that also has others of its source record would replay one of these instead."""
    copies = [replace(copied, reasons=[*copied.reasons]) for copied in (entry, *others)]
    leave_out_repeated(copies)
    return copies[0].reasons != entry.reasons


def judge_loops(entries: Sequence[Entry], letter_topics: Collection[str]) -> None:
    """Refuse records whose target is a topic of which dead letters landed."""
    for entry in entries:
        if entry.candidate.state == "accepted" and entry.topic in letter_topics:
            entry.reasons.append("loop")


def judge_erased(entries: Sequence[Entry], coordinates: Collection[tuple[str | None, int | None, int | None]]) -> None:
    """Refuse records whose content was erased."""
    for entry in entries:
        letter = entry.letter
        if (letter.topic, letter.partition, letter.offset) in coordinates:
            entry.reasons.append("erased")


def judge_targets(entries: Sequence[Entry], options: Options, targets: Mapping[str, Topic]) -> None:
    """Add the reasons that targets give."""
    for entry in entries:
        if entry.candidate.state == "accepted":
            reasons = judge.of_target(entry.candidate, options, targets)
            entry.reasons += [reason for reason in reasons if reason not in entry.reasons]


def judge_claims(entries: Sequence[Entry], options: Options, claims: Mapping[Letter, bool]) -> None:
    """Refuse records that a plan has taken, or replayed (True), of which nothing stands in the tables yet."""
    for entry in entries:
        if entry.letter in claims and not options.again and "replayed_before" not in entry.reasons:
            entry.reasons.append("replayed_before" if claims[entry.letter] else "claimed")


def fetch_originals(entries: Sequence[Entry], options: Options, warehouse: Warehouse) -> None:
    """Take payloads that were never copied, and headers that a share group dropped, from the original topics."""
    from pipelines.replay import client, fetch

    lacking = []
    for entry in entries:
        source, row = entry.candidate.source, entry.candidate.row
        if entry.reasons or not (row["header_profile"] in SHARE_GROUP or row["payload_copied"] is False):
            continue
        if source is None or row["original_topic_id"]:
            without_original(entry)
        else:
            lacking.append((entry, source))
    if not lacking:
        return
    names = {source[0] for _, source in lacking}
    now = client.describe(client.admin(warehouse.settings), names)
    originals = fetch.fetch(warehouse.settings, {source for _, source in lacking}, now)
    topics, acknowledged = (
        origins.Topics.known(warehouse, names),
        origins.acknowledged(warehouse, {source for _, source in lacking}),
    )
    for entry, source in lacking:
        original = originals[source]
        if original is fetch.ABORTED:
            entry.reasons.append("aborted_transaction")
        elif original is fetch.OPEN:
            entry.reasons.append("open_transaction")
        elif not isinstance(original, fetch.Fetched):
            without_original(entry)
        else:
            row = entry.candidate.row
            at = row["routed_at"] or row["dlq_timestamp"]
            topic_id = now[source[0]].topic_id
            is_same_topic = topics.is_same(source[0], topic_id, at)
            was_seen = topics.was_seen(source[0], topic_id, at)
            is_same = origins.is_same_record(row, acknowledged.get(source), original, is_same_topic, was_seen)
            if is_same is None:
                entry.doubt("other_record_possible", options)
            elif not is_same:
                entry.reasons.append("other_record")
            if not entry.reasons:
                _take(entry, original, options)


def without_original(entry: Entry) -> None:
    """Let a record go without its original: it lacks the payload, or the headers, if its dead letter does."""
    row = entry.candidate.row
    if entry.reasons:
        return
    if row["payload_copied"] is False:
        entry.reasons.append("no_payload")
    elif row["header_profile"] in SHARE_GROUP:
        entry.headers_lost = True


def _take(entry: Entry, fetched: Fetched, options: Options) -> None:
    """Take what the original topic has of a record that failed."""
    row = entry.candidate.row
    headers = entry.content.headers
    if row["header_profile"] in SHARE_GROUP:
        headers = entry.own(_without_sets(fetched.headers))
        entry.first = Source.told_by(fetched.headers) or entry.first
        attempt = max(entry.candidate.attempt, attempt_of(fetched.headers) + 1)
        entry.candidate = replace(entry.candidate, attempt=attempt)
        entry.reasons += judge.of_attempts(entry.candidate, options)
    entry.content = entry.before = Content(fetched.key, fetched.value, headers)
    entry.payload_from = "dlq" if row["payload_copied"] is not False else "original"
    entry.fetched_timestamp = fetched.timestamp


def _without_sets(headers: Headers) -> Headers:
    """Return the headers of a record without those of dead letters, where a set of these is complete."""
    names = {name for name, _ in headers}
    dropped = {name for profile in PROFILES if names.issuperset(profile.mandatory) for name in profile.names}
    return tuple(header for header in headers if header[0] not in dropped)


def judge_letters(entries: Sequence[Entry], options: Options, warehouse: Warehouse) -> None:
    """Refuse dead letters of transactions that were not committed, and doubt those of which nobody can tell.

    Landed segments tell it, and reads of a topic that see committed records only. Of other dead letters the cluster is
    asked. Brokers write those of share groups without a transaction.
    """
    from pipelines.replay import client, fetch

    is_committed = warehouse.settings.dlq.isolation_level == "read_committed"
    unsure = [
        entry
        for entry in entries
        if not entry.reasons
        and entry.candidate.write_state != "COMMITTED"
        and entry.candidate.row["header_profile"] not in SHARE_GROUP
        and not (entry.letter.topic_id and is_committed)
    ]
    if not unsure:
        return
    now = client.describe(client.admin(warehouse.settings), {entry.letter.topic for entry in unsure})
    readable = {name: topic for name, topic in now.items() if topic.may_read is not False}
    fetched = fetch.fetch(warehouse.settings, {fetch.coordinate_of(entry.letter) for entry in unsure}, readable)
    unknown = []
    for entry in unsure:
        letter = entry.letter
        there = fetched[fetch.coordinate_of(letter)]
        is_same_topic = letter.topic in now and letter.topic_id in ("", now[letter.topic].topic_id)
        if isinstance(there, fetch.Fetched) and (there.key, there.value) == (entry.before.key, entry.before.value):
            continue
        if is_same_topic and there is fetch.ABORTED:
            entry.reasons.append("rolled_back")
        elif is_same_topic and there is fetch.OPEN:
            entry.reasons.append("open_transaction")
        else:
            unknown.append(entry)
    landed = origins.landed(warehouse, {entry.letter for entry in unknown})
    for entry in unknown:
        if entry.letter not in landed:
            entry.doubt("commit_unknown", options)


def judge_earlier(entries: Sequence[Entry], options: Options, warehouse: Warehouse, journal: Journal) -> None:
    """Refuse records that stand on a target already as replays of which the journal knows nothing."""
    from pipelines.replay import client, earlier, store

    was_restored = restored.found(warehouse.store) is not None

    def died(entry: Entry) -> datetime | None:
        landed = entry.candidate.row["_ingested_at"]
        at = entry.dead_lettered_at or landed
        return None if was_restored and at == landed else at  # it can have landed again

    records = [entry.record for entry in entries if not entry.reasons and earlier.is_older(died(entry), journal.since)]
    if options.again or not records:
        return
    settings = warehouse.settings
    earlier_replays = earlier.look(settings, client.admin(settings), records, store.elsewhere(warehouse, records))
    replayed = earlier_replays.letters
    for entry in entries:
        if entry.reasons:
            continue
        if entry.letter in replayed:
            entry.reasons.append("replayed_before")
        elif entry.letter in earlier_replays.unknown:
            entry.doubt("replay_unknown", options)


def not_known(entries: Sequence[Entry], warehouse: Warehouse) -> str | None:
    """Say what a restored warehouse does not know of eligible records that died before it was whole again."""
    mark = restored.found(warehouse.store)
    if mark is None or mark.ended_at is None:
        return None
    if not any(not entry.reasons and (entry.dead_lettered_at or mark.ended_at) <= mark.ended_at for entry in entries):
        return None
    return (
        f"This warehouse was restored at {iso(mark.ended_at)} from a backup of {iso(mark.taken_at)}. What was replayed "
        "between them is looked for on the targets of this plan; what went to other topics, or was discarded, is not "
        "known."
    )


def date_firsts(entries: Sequence[Entry], warehouse: Warehouse) -> None:
    """Give the first coordinates of eligible records the times that acknowledgements tell, where nothing else does."""
    undated = []
    for entry in entries:
        topic, partition, offset, millis = entry.first or entry.source
        if not entry.reasons and millis is None and topic is not None and partition is not None and offset is not None:
            undated.append((entry, (topic, partition, offset)))
    acknowledged = origins.acknowledged(warehouse, {coordinate for _, coordinate in undated})
    for entry, coordinate in undated:
        millis = entry.source.timestamp if coordinate == entry.source[:3] else None
        if millis is None and coordinate in acknowledged:
            millis = acknowledged[coordinate].timestamp
        if millis is not None:
            entry.first = Source(*coordinate, millis)


def repair(entries: Sequence[Entry], transform: Transform) -> None:
    """Apply a transform to the eligible records; a dry run has not fetched some payloads, so it leaves those alone."""
    chosen = [entry for entry in entries if not entry.reasons and not entry.is_to_fetch]
    counts = Counter(entry.letter.coordinate for entry in chosen)
    names = {  # topics of one name that followed each other have the same coordinates
        entry.letter: entry.letter.coordinate
        + (f"@{entry.letter.topic_id}" if counts[entry.letter.coordinate] > 1 else "")
        for entry in chosen
    }
    repaired = transform.apply([(names[entry.letter], entry.content, entry.candidate.row) for entry in chosen])
    for entry in chosen:
        content = repaired.get(names[entry.letter])
        if content is None:
            entry.reasons.append("left_out")
        else:
            entry.is_transformed = content != entry.content
            entry.content = content


def measure(entries: Sequence[Entry], targets: Mapping[str, Topic]) -> None:
    """Refuse records that their target does not take: too large, or without a key on a compacted topic."""
    for entry in entries:
        content, target = entry.content, targets.get(entry.topic or "")
        if target and not entry.reasons and content.key is None and target.is_compacted and not entry.is_to_fetch:
            entry.reasons.append("needs_key")
        if target and not entry.reasons and judge.is_too_large(content.key, content.value, content.headers, target):
            entry.reasons.append("too_large")


def order(entries: Sequence[Entry], options: Options, targets: Mapping[str, Topic]) -> str:
    """Number the eligible records by source topic, partition and offset; return which order that keeps, in words.

    ``targets`` are the topics that the cluster told of, none in a dry run.
    """
    chosen = sorted((entry for entry in entries if not entry.reasons), key=_order)
    for position, entry in enumerate(chosen):
        entry.position = position
    if not chosen:
        return "There is nothing to put in order."
    said = ["Records of one source partition keep the order of their source offsets"]
    if options.to is None:
        said[0] += ", as each goes to its original partition."
    else:
        said[0] = "Records of one key and source partition keep the order of their source offsets."
        if any(entry.content.key is None for entry in chosen):
            said.append("Records without a key can go to any partition, so they keep no order.")
    if any(None in (entry.source.partition, entry.source.offset) for entry in chosen):
        said.append("Records whose source offset is unknown come last.")
    if any(entry.is_transformed and entry.content.key != entry.before.key for entry in chosen):
        said.append("The transform changes keys: equal keys of different source partitions have no order.")
    if all(entry.content.key is None and not entry.is_to_fetch for entry in chosen):
        said.append("No record has a key, so no order per key can break.")
        return " ".join(said)
    said.append(
        "The order per key can break: they come after all that their topics hold now, so later records of their keys "
        "went before them."
    )
    used = {entry.topic for entry in chosen}
    if compacted := sorted(name for name, target in targets.items() if name in used and target.is_compacted):
        are = "is" if len(compacted) == 1 else "are"
        said.append(
            f"On {named(compacted)}, which {are} compacted, a replayed record takes the place of newer ones of its key."
        )
    return " ".join(said)


def _order(entry: Entry) -> tuple[Any, ...]:
    """Return what puts a record in order: its source topic, partition and offset; those without come last."""
    source = entry.source
    partition = 2**31 if source.partition is None else source.partition
    offset = 2**63 if source.offset is None else source.offset
    return (source.topic or "", partition, offset, entry.letter)


def drawn(
    entries: Sequence[Entry],
    *,
    cluster: str,
    kafka_cluster_id: str,
    targets: Mapping[str, Topic],
    choice: str,
    options: Options,
    rules: Rules,
    transform: Transform | None,
    said: str,
) -> Draft:
    """Return the plan of entries, with an id and a hash over all that it says but its time and its end offsets."""
    topics = {entry.topic for entry in entries if not entry.reasons and entry.topic is not None}
    used = sorted(topics & targets.keys())
    aims = tuple(Target(name, targets[name].topic_id or "", tuple(targets[name].ends or ())) for name in used)
    digest = hashlib.sha256()
    head: list[Any] = [
        cluster,
        kafka_cluster_id,
        choice,
        options.to,
        options.again,
        options.max_replays,
        options.ignore_rules,
    ]
    head += [rules.digest, transform.digest if transform else None, [[aim.topic, aim.topic_id] for aim in aims]]
    head += sorted(options.allowed)
    digest.update(json.dumps(head).encode())
    for entry in sorted(entries, key=lambda entry: entry.letter):
        content = entry.content
        headers = [[name, None if data is None else data.hex()] for name, data in content.headers]
        payload = [None if data is None else data.hex() for data in (content.key, content.value)]
        facts: list[Any] = [
            *entry.letter,
            *entry.source,
            entry.candidate.attempt,
            entry.position,
            sorted(entry.reasons),
        ]
        facts += [entry.topic, entry.partition, *payload, headers, entry.payload_from]
        facts += [] if entry.first is None else [*entry.first]
        digest.update(json.dumps(facts).encode())
    name = digest.hexdigest()
    eligible = sorted((entry for entry in entries if not entry.reasons), key=lambda entry: entry.position or 0)
    records = tuple(entry.record for entry in eligible)
    plan_id = ids.spoken(int(name[:10], 16))
    now = moments.now()
    plan = Plan(plan_id, name, cluster, kafka_cluster_id, now, aims, records, options.again, options.allowed)
    return Draft(plan, tuple(entries), choice, options, rules, transform, said, account())


def refuse_without_cluster(settings: Settings) -> None:
    """Raise UsageError if the settings name no cluster."""
    if not settings.kafka.bootstrap_servers:
        raise UsageError("A replay needs the cluster: set bootstrap_servers under [kafka].")


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
