"""Each sentence about an incident's evidence, checked against a recomputation from silver over random histories."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.commands.incidents import story
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import run_needed, warehouse_of
from tests.testing.failures import OWN, History
from tests.testing.truths import SECOND, Silver, Truth, micros

SUMMARY, INCIDENTS, SUSPECTS = "gold.dlq_summary", "gold.dlq_incidents", "gold.incident_suspects"
N = r"[\d,]+"
SHARE = r"at least \d+ %|less than 1 %|more than 99 %|\d+ %"
RATE = r"less than 0\.1|[\d,.]+"
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
FEEDS = r"records in landed segments|acknowledged records"
SOURCES = rf"at most {N} unnamed source records?|{N} source records?(?: and at most {N} unknown ones?)?"
KEYS = rf"{N}(?: to {N})? keys?"
AMONG = rf"(?P<died>{N}) of the (?P<known>{N}) (?P<of>{FEEDS}) around (?P<them>it|them) died of it"
AROUND = rf"(?P<share>{SHARE}) of the (?P<of>offsets that do not look like markers|offsets|{FEEDS}) around them"
DIED = rf"(?:{AROUND} died|(?P<nothing>nothing tells which share died))"


def number(text: str) -> int:
    return int(text.replace(",", ""))


def says_share(text: str, share: Fraction | float | None, least: bool = False) -> None:
    """Check that words are those of a share; ``least``: more may be true."""
    assert share is not None, text
    exact, rounding = Fraction(share) * 100, Fraction(1, 10**9)
    if text == "less than 1 %":
        assert 0 < exact < Fraction(1, 2), (text, exact)
    elif text == "more than 99 %":
        assert Fraction(199, 2) <= exact < 100, (text, exact)
    elif text.lower().startswith("at least "):
        assert least, text
        assert number(text.split()[2]) <= exact, (text, exact)
    else:
        said = number(text.removesuffix(" %"))
        assert abs(said - exact) <= Fraction(1, 2) + rounding, (text, exact)
        assert said not in (0, 100) or said == exact, (text, exact)


def says_rate(text: str, rate: Fraction | float) -> None:
    if text == "less than 0.1":
        assert 0 < rate < 0.05, (text, rate)
        return
    said, step = float(text.replace(",", "")), 1 if rate >= 10 else 0.1
    assert abs(said - rate) <= step / 2 + 1e-9, (text, rate)
    assert said or not rate


def says_sources(text: str, truth: Truth) -> None:
    if not truth.placed:
        assert number(text.split()[2]) == truth.unknown
        return
    known, _, unknown = text.partition(" and at most ")
    assert known == f"{len(truth.placed):,} source record{'' if len(truth.placed) == 1 else 's'}"
    assert (number(unknown.split()[0]) if unknown else 0) == truth.unknown


def says_keys(text: str, truth: Truth) -> None:
    keys, said = len(truth.keys), number(re.findall(N, text)[0])
    if " to " in text:
        assert keys >= 64, text
        most = number(re.findall(N, text)[1])
        assert 0.7 * said <= keys <= 1.4 * most, (text, keys)  # the range is of two standard errors
    else:
        assert said == keys, (text, keys)


def says_key_share(text: str, truth: Truth) -> None:
    """Check a share of keys: beyond 8 keys, slices and half hours count the most frequent ones only."""
    assert text.lower().startswith("at least ") is (len(truth.keys) > 8 and truth.key_share != 1), text
    says_share(text, truth.key_share, least=True)


def says_among(found: Mapping[str, str], truth: Truth) -> None:
    _, of, offsets, known = truth.around
    assert offsets is None
    assert (number(found["died"]), number(found["known"]), found["of"]) == (len(truth.placed), known, of)
    assert (found["them"] == "it") is (len(truth.placed) == 1)


def says_died(found: Mapping[str, str], truth: Truth) -> None:
    share, of, _, _ = truth.around
    if found.get("nothing"):
        assert share is None
        return
    says_share(found["share"], share)
    assert found["of"] == of


def subject(truth: Truth) -> str:
    group, owner, topic = truth.key[:3]
    who = f"Group {group}" if group is not None else f"An application ({owner})"
    count = len(truth.letters)
    records = f"{count:,} record{'' if count == 1 else 's'}"
    return f"{who} could not process {records} of {topic or 'an unknown topic'}: "


Check = Callable[[Truth, Mapping[str, Any], Mapping[str, str]], None]
SENTENCES: dict[str, tuple[str, Check]] = {}
"""Kinds of sentences: a pattern of the whole sentence, and a check of what it says of a row."""


def sentence(pattern: str) -> Callable[[Check], Check]:
    def known(check: Check) -> Check:
        SENTENCES[check.__name__] = pattern, check
        return check

    return known


def is_(verdict: str, truth: Truth, row: Mapping[str, Any]) -> None:
    assert row["verdict"] == verdict


@sentence(rf"one source record, (?P<place>\S+), was dead-lettered (?:once|(?P<times>{N}) times)\.")
def one_pill(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("POISON_PILL", truth, row)
    ((partition, offset),) = truth.placed
    assert truth.unknown == 0
    assert found["place"] == f"{truth.topic}:{partition}:{offset}"
    assert number(found["times"] or "1") == len(truth.letters)
    assert ("died" in found) or truth.around[0] is None


@sentence(rf"one source record, (?P<place>\S+), was dead-lettered (?:once|(?P<times>{N}) times); {AMONG}\.")
def one_pill_among_others(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    one_pill(truth, row, found)
    says_among(found, truth)


@sentence(rf"(?P<sources>{SOURCES}); {AMONG}\.")
def some_pills_among_others(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("POISON_PILL", truth, row)
    says_sources(found["sources"], truth)
    says_among(found, truth)


@sentence(rf"(?P<sources>{SOURCES}); nothing tells which share died\.")
def some_pills(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("POISON_PILL", truth, row)
    says_sources(found["sources"], truth)
    assert truth.around[0] is None


@sentence(rf"With more than (?P<most>{N}) source records it would be no POISON_PILL\.")
def more_pills(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("POISON_PILL", truth, row)
    most = number(found["most"])
    assert truth.sources <= most
    assert (truth.are_few(most), truth.are_few(most + 1)) == (True, False)


@sentence(rf"(?:(?P<one>one key has)|(?P<top>{N}) of (?P<keys>{KEYS}) have) (?P<share>{SHARE}) of them\.")
def of_few_keys(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("KEY_LOCAL", truth, row)
    says_key_share(found["share"], truth)
    if found["one"]:
        assert len(truth.keys) == 1
    else:
        assert number(found["top"]) == min(len(truth.keys), 3) > 1
        says_keys(found["keys"], truth)


@sentence(r"A share of these keys below 75 % would make it (?P<verdict>[A-Z_]+)\.")
def of_other_keys(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("KEY_LOCAL", truth, row)
    assert found["verdict"] in verdicts(truth, row, key_share=None)


@sentence(
    rf"(?P<most>{SHARE}) of the source records are of partition (?P<partition>\d+), and the topic has (?P<all>\d+) or "
    rf"more; {AROUND} died\."
)
def of_one_partition(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("PARTITION_LOCAL", truth, row)
    share, partition = truth.partition_share
    says_share(found["most"], share)
    assert (int(found["partition"]), int(found["all"])) == (
        partition,
        min(truth.silver.partitions[truth.topic], 2**31 - 1),
    )
    says_died(found, truth)


@sentence(r"A share of partition (?P<partition>\d+) below 90 % would make it (?P<verdict>[A-Z_]+)\.")
def of_other_partitions(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("PARTITION_LOCAL", truth, row)
    assert int(found["partition"]) == truth.partition_share[1]
    assert found["verdict"] in verdicts(truth, row, partition_share=None)


@sentence(
    rf"(?P<share>{SHARE})(?P<of> of the source records)? (?:were produced by client (?P<client>\S+)|share one "
    r"schema id of the (?P<schema>key|value)|share one value of header (?P<header>\S+)), and "
    rf"(?P<elsewhere>{SHARE}) of (?P<others>delivered messages|other dead letters)\."
)
def of_one_producer(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("PRODUCER_LOCAL", truth, row)
    kind = "client" if found["client"] else "schema_id" if found["schema"] else "header"
    assert (kind, found["client"] or found["header"] or found["schema"]) == (
        row["attribute_kind"],
        row["attribute_name"],
    )
    item = best(truth, row)
    share, elsewhere, others = truth.attributes[item]
    says_share(found["share"], share, least=True)
    assert bool(found["of"]) is all(item not in letter.attributes for letter in truth.letters)
    says_share(found["elsewhere"], elsewhere)
    assert found["others"] == others


@sentence(r"It would be no evidence if more than 50 % of (?P<others>delivered messages|other dead letters) had it\.")
def of_all_producers(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("PRODUCER_LOCAL", truth, row)
    _, elsewhere, others = truth.attributes[best(truth, row)]
    assert elsewhere is not None
    assert (2 * elsewhere <= 1, found["others"]) == (True, others)


@sentence(rf"{AROUND} died, in (?P<partitions>{N}) partitions?(?: and (?P<keys>{KEYS}))?\.")
def of_all(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("SYSTEMIC", truth, row)
    says_died(found, truth)
    assert number(found["partitions"]) == len(truth.of_partitions)
    assert bool(found["keys"]) is bool(truth.keys)
    if found["keys"]:
        says_keys(found["keys"], truth)


@sentence(r"A share below 30 % would make it (?P<verdict>[A-Z_]+)\.")
def of_fewer(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("SYSTEMIC", truth, row)
    assert found["verdict"] in verdicts(truth, row, share=None)


ARCHIVED = {"a circuit breaker": "CIRCUIT_BREAKER_ARCHIVED", "the coordinator": "COORDINATOR_INITIATED"}
WHO = "|".join(ARCHIVED)


def archived(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("FLOOD", truth, row)
    assert row["disposition"] == ARCHIVED[found["who"]]
    assert (found["sources"] is None) is (len(truth.letters) == 1)
    if found["sources"]:
        says_sources(found["sources"], truth)


@sentence(rf"(?P<who>{WHO}) archived (?:it|them, (?P<sources>{SOURCES})); {DIED}\.")
def archived_around(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    archived(truth, row, found)
    says_died(found, truth)


@sentence(rf"(?P<who>{WHO}) archived (?:it|them, (?P<sources>{SOURCES})); {AMONG}\.")
def archived_among(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    archived(truth, row, found)
    says_among(found, truth)


@sentence(r"If the application had failed on each, it would be (?P<verdict>[A-Z_]+)\.")
def not_archived(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("FLOOD", truth, row)
    assert found["verdict"] in verdicts(truth, row, disposition=None)


@sentence(rf"the application rejected them; {DIED}\.")
def rejected(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("REJECTION", truth, row)
    says_died(found, truth)


@sentence(rf"no partition, key or header is known to stand out; {DIED}\.")
def undetermined(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("UNDETERMINED", truth, row)
    says_died(found, truth)


@sentence(
    r"A share of at least 30 % would make it SYSTEMIC; (?P<how>90 % in one(?P<several> of several)? partitions?|"
    r"another partition of the topic) would make it PARTITION_LOCAL\."
)
def of_more(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    assert row["verdict"] in ("REJECTION", "UNDETERMINED")
    assert "SYSTEMIC" in verdicts(truth, row, share=Fraction(3, 10))
    share, _ = truth.partition_share
    assert (found["how"] == "another partition of the topic") is (share is not None and 10 * share >= 9)
    if found["how"] != "another partition of the topic":
        assert (found["several"] is None) is (truth.silver.partitions[truth.topic] > 1)


def best(truth: Truth, row: Mapping[str, Any]) -> Any:
    """Return the attribute that a row names; assert that none stands out more."""
    if row["attribute_kind"] is None:
        assert not truth.attributes
        return None

    def rank(item: Any) -> Fraction:
        share, elsewhere, _ = truth.attributes[item]
        return share - (Fraction(1, 2) if elsewhere is None else elsewhere)

    named = [
        attribute for attribute in truth.attributes if attribute[:2] == (row["attribute_kind"], row["attribute_name"])
    ]
    named += [("client", row["attribute_name"], None)] if row["attribute_kind"] == "client" else []
    item = max(named, key=rank)
    assert rank(item) == max(map(rank, truth.attributes))
    return item


def verdicts(truth: Truth, row: Mapping[str, Any], **changed: Any) -> set[str]:
    return {truth.verdict(attribute=best(truth, row), **changed)}


# --- the lines below it


@sentence(
    rf"(?P<records>{N}) records? of (?P<sources>{SOURCES})(?:, (?P<partitions>{N}) partitions?)?(?:, (?P<keys>{KEYS}))?"
    rf"(?:; (?P<rate>{RATE}) an hour(?:; usually (?P<usual>{RATE}) at this hour of the week)?)?\."
)
def counts(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    assert number(found["records"]) == len(truth.letters)
    says_sources(found["sources"], truth)
    assert (number(found["partitions"]) if found["partitions"] else 0) == len(truth.of_partitions)
    assert bool(found["keys"]) is bool(truth.keys)
    if found["keys"]:
        says_keys(found["keys"], truth)
    if not (truth.letters[0].has_time and truth.letters[-1].has_time):
        assert found["rate"] is None
        return
    span = max(truth.letters[-1].at - truth.letters[0].at, 3600 * SECOND)
    says_rate(found["rate"], Fraction(len(truth.letters) * 3600 * SECOND, span))
    usual = usual_rate(truth)
    assert (usual is None) is (found["usual"] is None)
    if usual is not None:
        says_rate(found["usual"], usual)


def usual_rate(truth: Truth) -> Fraction | None:
    """Return how many records an hour the owner dead-letters at the hour of the week, by up to 8 weeks before."""
    hour, week = 3600 * SECOND, 7 * 24 * 3600 * SECOND
    timed = [(key[:2], letter) for key, of in truth.silver.letters.items() for letter in of if letter.has_time]
    times = [(owner, item.at - item.at % hour) for owner, item in timed]
    begin = truth.letters[0].at - truth.letters[0].at % hour
    hours = sorted({at for _, at in times})
    first = max(at for index, at in enumerate(hours) if not index or hours[index - 1] < at - 8 * week)
    weeks = min((begin - first) // week, 8)
    if weeks < 1:
        return None
    wanted = {begin - count * week for count in range(1, weeks + 1)}
    return Fraction(sum(owner == truth.key[:2] and at in wanted for owner, at in times), weeks)


@sentence(rf"{AMONG}\.")
def among(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    says_among(found, truth)


@sentence(
    rf"{AROUND} died(?:; (?P<held>{N}) of the (?P<offsets>{N}) offsets? hold records)?"
    rf"(?:; (?P<whole>{SHARE}) of all (?P<all>{N}) from the first to the last)?\."
)
def died(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    says_died(found, truth)
    _, _, offsets, held = truth.around
    assert (found["held"] and number(found["held"])) == held
    assert found["held"] is None or number(found["offsets"]) == offsets
    if found["whole"]:
        within = sum(len(of) for of in truth.of_partitions.values() if len(of) > 1)
        assert number(found["all"]) == (held or offsets)
        says_share(found["whole"], min(Fraction(1), Fraction(within, held or offsets)))
        assert found["whole"] != found["share"]


@sentence(rf"(?P<share>{SHARE}) of the source records are of partition (?P<partition>\d+)\.")
def partition(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    says_share(found["share"], truth.partition_share[0])
    assert int(found["partition"]) == truth.partition_share[1]


@sentence(rf"(?P<share>(?i:{SHARE})) of the records have one (?:key|of (?P<top>\d) keys)\.")
def key(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    assert int(found["top"] or 1) == min(len(truth.keys), 3)
    says_key_share(found["share"], truth)


@sentence(
    rf"(?P<share>(?i:{SHARE})) (?:of the source records were produced by client (?P<client>\S+)|share one value of "
    r"header (?P<header>\S+)|share one schema id of the (?P<schema_id>key|value)|share one prefix of the "
    r"(?P<prefix>key))\."
)
def attribute(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    if found["prefix"]:
        assert (row["attribute_kind"], row["attribute_name"]) == ("key_prefix", "")
    else:
        assert found[row["attribute_kind"]] == row["attribute_name"]
    says_share(found["share"], truth.attributes[best(truth, row)][0], least=True)


@sentence(r"Severity (?P<level>critical|high|medium|low): (?P<reasons>.+)\.")
def severity(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    assert found["level"] == row["severity"]
    for reason in found["reasons"].split("; "):
        read(reason, truth, row, REASONS)


@sentence(rf"(?P<without>{N}) records? (?:has|have) no payload\.")
def without_payload(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    assert number(found["without"]) == sum(not letter.has_payload for letter in truth.letters) > 0


def reason(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    """Check a reason of a severity."""
    records, at = len(truth.letters), [letter.at for letter in truth.letters]
    said = {name: text for name, text in found.items() if text is not None}
    if "partition" in said:
        assert int(said["partition"]) == truth.partition_share[1]
        says_share(said["most"], truth.partition_share[0])
    if "who" in said:
        assert row["disposition"] == ARCHIVED[said["who"]]
    if "records" in said:
        assert number(said["records"]) == records >= 1000
    if "a_minute" in said:
        says_rate(said["a_minute"], Fraction(records * 60 * SECOND, max(at[-1] - at[0], 60 * SECOND)))
    if "lost" in said:
        says_share(said["lost"], Fraction(sum(not letter.has_payload for letter in truth.letters), records))
    if "sources" in said:
        says_sources(said["sources"], truth)


def of_what_died(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    is_("SYSTEMIC", truth, row)
    says_died(found, truth)


def again(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    assert len(truth.letters) >= 10 * truth.sources
    assert truth.is_few


def few(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    assert truth.sources <= 12


REASONS: dict[str, tuple[str, Check]] = {
    "died": (rf"{AROUND} died", of_what_died),
    "archived": (rf"(?P<who>{WHO}) archived (?P<sources>{SOURCES})", reason),
    "again": (r"the same records? (?:is|are) dead-lettered again and again", again),
    "few": (r"few source records failed", few),
    "partition": (rf"(?P<most>{SHARE}) of the source records are of partition (?P<partition>\d+)", reason),
    "many": (rf"(?P<records>{N}) records were dead-lettered", reason),
    "fast": (rf"(?P<a_minute>{N}) records a minute were dead-lettered", reason),
    "without": (
        rf"(?P<lost>{SHARE}) of the records have no payload, so that they can only be fetched from their source",
        reason,
    ),
    "failed": (rf"(?P<sources>{SOURCES}) failed", reason),
}


@sentence(rf"It escalated at (?P<at>{TIME}): (?P<before>{RATE}) -> (?P<after>{RATE}) an hour\.")
def escalated(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    at = micros(datetime.fromisoformat(found["at"].replace(" UTC", "+00:00"))) // SECOND
    ((before, after),) = [rates for when, *rates in truth.escalations if when // SECOND == at]
    says_rate(found["before"], before)
    says_rate(found["after"], after)


@sentence(
    rf"Since (?P<first_read>an unknown time, read since )?(?P<first>{TIME}) \((?P<ago>.+?)\), "
    rf"last (?P<last_read>read )?(?P<last>{TIME}) \((?P<last_ago>.+?)\)(?:, for (?P<lasting>.+))?\."
)
def since(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    for name, letter in (("first", truth.letters[0]), ("last", truth.letters[-1])):
        assert micros(datetime.fromisoformat(found[name].replace(" UTC", "+00:00"))) == letter.at // SECOND * SECOND
        assert bool(found[f"{name}_read"]) == (not letter.has_time)
    if not (truth.letters[0].has_time and truth.letters[-1].has_time):
        assert found["lasting"] is None
        return
    lasted = (truth.letters[-1].at - truth.letters[0].at) // SECOND
    count, unit = found["lasting"].split()
    length = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}[unit.removesuffix("s")]
    assert number(count) == lasted // length


@sentence(rf"(?P<topic>\S+):(?P<partition>\d+):(?P<offset>\d+)  (?P<least>at least )?(?P<times>{N}) times?")
def where(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    times = truth.placed[int(found["partition"]), int(found["offset"])]
    assert found["topic"] == truth.topic
    assert number(found["times"]) <= times
    assert found["least"] or number(found["times"]) == times


@sentence(r"No header names a source record\.")
def nowhere(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    assert not truth.placed


@sentence(
    rf"\d\. (?P<share>{SHARE}) (?:of the source records were produced by client (?P<client>\S+)|share one value of "
    r"header (?P<header>\S+)|share one (?P<schema>schema id) of the (?:key|value)|share one (?P<prefix>prefix) of the "
    rf"key), and (?P<elsewhere>{SHARE}) of (?P<others>delivered messages|other dead letters)(?: have it)?"
)
def suspected_attribute(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    parts = {"client": "client", "header": "header", "schema_id": "schema", "key_prefix": "prefix"}
    assert found[parts[row["attribute_kind"]]] is not None
    share, elsewhere, others = truth.attributes[best(truth, row)]
    says_share(found["share"], share, least=True)
    says_share(found["elsewhere"], elsewhere)
    assert found["others"] == others


@sentence(
    r"\d\. the first dead letter of group (?P<group>\S+) came "
    r"(?:at about the same time|(?P<minutes>\d+) minutes? before|(?P<hours>\d+) hours before)"
)
def suspected_group(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    assert found["group"] == truth.key[0]
    first = min(letter.at for key, of in truth.silver.letters.items() if key[:2] == truth.key[:2] for letter in of)
    before = (truth.letters[0].at - first) // SECOND
    assert before > 0
    assert found["minutes"] is None or int(found["minutes"]) == before // 60
    assert found["hours"] is None or int(found["hours"]) == before // 3600
    assert any(key[2] == truth.topic and letter.at < first for key, of in truth.silver.letters.items() for letter in of)


@sentence(re.escape(story.no_change(knows_deployments=False)))
def no_change(truth: Truth, row: Mapping[str, Any], found: Mapping[str, str]) -> None:
    """Check that the owner is not new on the topic: no other change lands here."""
    hour, begin = 3600 * SECOND, truth.letters[0].at
    first = min(letter.at for key, of in truth.silver.letters.items() if key[:2] == truth.key[:2] for letter in of)
    of_topic = min(letter.at for key, of in truth.silver.letters.items() if key[2] == truth.topic for letter in of)
    assert not (truth.topic and of_topic < first - hour and first < begin <= first + 24 * hour)


def read(text: str, truth: Truth, row: Mapping[str, Any], kinds: Mapping[str, tuple[str, Check]]) -> str:
    """Check what a text of one of the kinds says; return the kind."""
    for name, (pattern, check) in kinds.items():
        if found := re.fullmatch(pattern, text):
            SEEN.update((name, *(f"{name}.{part}" for part, said in found.groupdict().items() if said is not None)))
            SEEN.update(word for word in WORDS if word in text)
            check(truth, row, found.groupdict())
            return name
    raise AssertionError(f"no kind of sentence: {text!r}")


SEEN: set[str] = set()
"""The kinds that were read, their parts that were said, and words that were."""
OF_A_STATE = r"It (?:ends after|came back|is the first)|No record came|Its last record is stamped"
WORDS = (
    "unnamed source record",
    "and at most",
    " to ",
    "at least ",
    "At least ",
    "less than 1 %",
    "more than 99 %",
    " 0 %",
    "100 %",
    "them died of it",
    "it died of it",
    "offsets that do not look like markers",
    "records in landed segments",
    "acknowledged records",
    "of the offsets",
    "hold records",
    "have one key",
    "one of 3 keys",
    "share one value of header",
    "share one schema id",
    "were produced by client",
    "delivered messages",
    "other dead letters",
    "less than 0.1",
    "an unknown topic",
    "another partition",
)
"""Each must be said by some sentence."""


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_each_sentence_is_true(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    history = History(random.Random(seed))
    history.draw()
    settings = warehouse_of(empty_warehouse, tmp_path, dlq={"profile": [OWN]})
    history.land(settings)
    done = run_needed(spark, settings, INCIDENTS, SUSPECTS, SUMMARY)
    assert {stage_run.status for stage_run in done.values()} <= {"passed", "idle"}, done
    silver = Silver(settings)
    truths = {(*truth.key[:6], truth.letters[0].at, truth.letters[-1].at): truth for truth in silver.truths}
    rows = jvmless.rows(Warehouse(settings), INCIDENTS, {"cluster": settings.cluster})
    SEEN.clear()
    assert {_of_row(row) for row in rows} == truths.keys()
    at = max(datetime.now(UTC), *(row["last_at"] for row in rows)) + timedelta(hours=1)
    monkeypatch.setattr(story, "now_of", lambda _: at)  # times in the future are refused
    for row in rows:
        truth = truths[_of_row(row)]
        text = story.one(Warehouse(settings), row["incident_id"]).result.splitlines()
        begin, end = text.index("Evidence"), text.index("Error")
        head = subject(truth)
        assert text[1] == f"  {row['sentence']}"
        assert row["sentence"].startswith(head), (row["sentence"], head)
        assert truth.verdict(attribute=best(truth, row)) == row["verdict"], (row, truth.around)
        said = [row["sentence"].removeprefix(head), row["would_change"], text[2], *text[begin + 1 : end - 1]]
        said += [item for item in text[4 : begin - 1] if not re.match(OF_A_STATE, item.strip())]
        for part in ("Where", "Suspects"):
            begin = text.index(part) + 1
            said += text[begin : text.index("", begin)]
        SEEN.update(word for word in WORDS if word in head)
        for sentence in said:
            read(sentence.strip(), truth, row, SENTENCES)
    assert said_by(SENTENCES) | said_by(REASONS) | {*WORDS} <= SEEN


def said_by(kinds: Mapping[str, tuple[str, Check]]) -> set[str]:
    """Return the names of kinds and of their parts."""
    parts = {f"{name}.{part}" for name, (pattern, _) in kinds.items() for part in re.compile(pattern).groupindex}
    return {*kinds, *parts}


def _of_row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    owner = row["consumer_group"] if row["consumer_group"] is not None else row["owner"]
    names = ("original_topic", "disposition", "exception_class", "exception_cause_class")
    return (
        row["consumer_group"],
        owner,
        *(row[name] for name in names),
        micros(row["first_at"]),
        micros(row["last_at"]),
    )
