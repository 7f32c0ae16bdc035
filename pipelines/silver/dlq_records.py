"""bronze.dlq_records -> silver.dlq_records: headers decoded by profile, and typed if their text allows it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cache

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from expectations import owners
from expectations.rules import GREATEST_MILLIS, INT32, INT64, decimal_up_to
from expectations.silver.dlq_records import CONTRACT, ISO_8601_UTC
from expectations.text import visible
from expectations.verdict import SCOPE, Verdict
from pipelines.columns import contract as columns
from pipelines.columns import globs, headers, unknown_headers
from pipelines.columns.headers import Plans
from pipelines.columns.once import computed_once
from pipelines.columns.profiles import FIELDS, KIP_1317, PROFILES, Profile, profiles_of
from pipelines.columns.proposals import proposals
from pipelines.columns.writers import Letter
from pipelines.incidents.episodes import VERSION
from pipelines.settings import Dlq, Settings
from pipelines.warehouse.ranges import points
from pipelines.warehouse.tables import Warehouse

log = logging.getLogger("afterlog")

SCOPE_OF_INPUT = "topic"
DISPOSITION_OF_MESSAGE = {  # the two messages of a Kafka 4.4 broker
    "Offset rejected by client.": "CLIENT_REJECTED",
    "Offset delivery count exceeded the threshold.": "MAX_DELIVERY_ATTEMPTS_REACHED",
}
# Kafka prints a Uuid as 16 bytes in URL-safe base64. A topic name can look the same; mixed case makes that unlikely.
TOPIC_ID = r"\A(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[A-Za-z0-9_-]{21}[AQgw]\z"
TOPIC_ID_LENGTH = 22
DLQ_OF_A_GROUP = "errors.deadletterqueue.topic.name"
SEPARATOR = "\0"  # between the names of a cluster and a topic
LACKING = ("header_profile.mandatory", *(f"{field}.not_null" for field in FIELDS if field in KIP_1317.encodings))
UNREAD = ("header_profile.not_null", "header_profile.mandatory")
MOST_LOOKED_AT = 200  # rows of a scope whose headers tell of a writer
MOST_LETTERS = 2_000  # of all scopes
MILLIS = decimal_up_to(GREATEST_MILLIS)
Topic = tuple[str, str]  # a cluster and a DLQ topic
UTF8_RULES = frozenset(rule.code for rule in CONTRACT.rules if rule.name == "utf8")


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return one candidate for each bronze row, in the contract's columns; values that cannot be typed are null."""
    return _transform(bronze, settings, None)


def transform_in(bronze: DataFrame, warehouse: Warehouse) -> DataFrame:
    """Return the same, where the warehouse can tell who writes to a DLQ topic."""
    return _transform(bronze, warehouse.settings, warehouse)


def _transform(bronze: DataFrame, settings: Settings, warehouse: Warehouse | None) -> DataFrame:
    plans = headers.shapes_of(bronze, profiles_of(settings.dlq))
    known = _with_known_writers(plans, warehouse)
    for topic in sorted(_nameless(plans) - known) if warehouse else ():
        _tell_once(topic)
    return _candidates(bronze, plans, settings.dlq, known)


@cache
def _tell_once(topic: Topic) -> None:
    """Say that nothing tells who writes a topic, once for each topic of a process."""
    log.warning(
        "Topic %s has dead letters without the headers of any known writer. %s", visible(topic[1]), owners.NAMELESS
    )


def _candidates(bronze: DataFrame, plans: Plans, dlq: Dlq, known: frozenset[Topic]) -> DataFrame:
    """Return the candidates; a record without a writer's headers is lawful unless its topic is one of ``known``.

    If its headers look like those of a writer whom no profile knows, it waits for a profile.
    """
    decoded = headers.decode(bronze, plans)
    names = [SEPARATOR.join(topic) for topic in sorted(known)]
    is_known = F.concat_ws(SEPARATOR, "cluster", "topic").isin(names) if names else F.lit(False)
    is_lawful = F.col("error").isNull() & ~is_known & _required_profile(dlq).isNull()
    is_lawful = is_lawful & ~headers.look_like_a_writers("headers")
    profile = F.coalesce("header_profile", F.when(is_lawful, F.lit(owners.UNKNOWN)))
    return decoded.withColumn("header_profile", profile).select(*_columns(dlq))


def _nameless(plans: Plans) -> set[Topic]:
    """Return the DLQ topics with records that no profile knows and whose headers do not look like a writer's."""
    return {
        (cluster, topic)
        for (cluster, topic), shapes in plans.by_topic.items()
        if cluster is not None
        and topic is not None
        and any(not looks and plans.planner.plan(shape).own is None for shape, looks in shapes)
    }


def _with_known_writers(plans: Plans, warehouse: Warehouse | None) -> frozenset[Topic]:
    """Return the DLQ topics of which something says who writes them, among those with records of no known writer."""
    nameless = _nameless(plans)
    known = {
        topic
        for topic in nameless
        if any(plans.planner.plan(shape).own is not None for shape, _ in plans.by_topic[topic])
    }
    asked = nameless - known
    return frozenset(known | (_known_writers(warehouse, asked) if warehouse and asked else set()))


def _known_writers(warehouse: Warehouse, topics: set[Topic]) -> set[Topic]:
    """Return the topics of which an earlier record, or the settings of a share group, says who writes them."""
    names = sorted({topic for _, topic in topics})
    found: set[Topic] = set()
    if (records := warehouse.existing_rows("silver.dlq_records", points("dlq_topic", names))) is not None:
        profile = F.col("header_profile")  # ranges, by which Delta and Parquet skip files
        written = records.where((profile < owners.UNKNOWN) | (profile > owners.UNKNOWN))
        found |= {(row[0], row[1]) for row in written.select("cluster", "dlq_topic").distinct().collect()}
    if (settings := warehouse.existing_rows("silver.dlq_settings", points("value", names))) is not None:
        stated = settings.where((F.col("setting") == DLQ_OF_A_GROUP) & F.col("until").isNull())
        found |= {(row[0], row[1]) for row in stated.select("cluster", "value").distinct().collect()}
    return found & topics


def explain(judged: DataFrame, bronze: DataFrame, verdict: Verdict, settings: Settings) -> Verdict:
    """Return the verdict with, by scope, what headers say of rows that no profile reads.

    These are the names of headers, and profiles that would read them. For rows that lack headers it is also the profile
    that comes nearest, and what they lack. ``judged`` holds the candidates without payloads,
    ``bronze`` the rows that they come from. Headers are read from ``bronze`` for the rows that break a rule: to decode
    all of them again would cost as much as the whole batch.
    """
    if first := _first(verdict, LACKING):
        nearest = _nearest(_broken(judged, bronze, LACKING, first), profiles_of(settings.dlq))
        verdict = _explained(verdict, first, {of: (said, "") for of, said in nearest.items()})
    if first := _first(verdict, UNREAD):
        verdict = _explained(verdict, first, _proposed(_broken(judged, bronze, UNREAD, first), settings.dlq))
    return verdict


def _first(verdict: Verdict, codes: Collection[str]) -> dict[str | None, str]:
    """Return, by scope, the first of some rules that failed."""
    first: dict[str | None, str] = {}
    for outcome in verdict.failed:
        if outcome.code in codes:
            first.setdefault(outcome.scope, outcome.code)
    return first


def _explained(
    verdict: Verdict, code_of: Mapping[str | None, str], reasons: Mapping[str | None, tuple[str, str]]
) -> Verdict:
    for code in sorted(set(code_of.values())):
        verdict = verdict.explained(code, {of: reasons[of] for of in reasons if code_of.get(of) == code})
    return verdict


def _broken(judged: DataFrame, bronze: DataFrame, codes: Collection[str], scopes: Collection[str | None]) -> DataFrame:
    """Return rows of bronze that break one of some rules, with a column ``of`` for each of the scopes they are in."""
    of = F.explode(F.array_distinct(F.array(SCOPE, F.lit(None).cast("string"))))
    violations = CONTRACT.violations(F.col("_broken_rules"))
    broken = judged.where(F.arrays_overlap(violations, F.array(*map(F.lit, codes))))
    named = [name for name in scopes if name is not None]
    is_asked = F.col("of").isin(named) | (F.lit(None in scopes) & F.col("of").isNull())
    return broken.select(*CONTRACT.row, of.alias("of")).where(is_asked).join(bronze, [*CONTRACT.row])


def _proposed(unknown: DataFrame, dlq: Dlq) -> dict[str | None, tuple[str, str]]:
    """Return, by scope, a sentence on the headers of rows that no profile reads, and profiles that would read them."""
    number = F.row_number().over(Window.partitionBy("of").orderBy(*CONTRACT.row))
    time = F.unix_millis("timestamp").alias("time")
    looked_at = unknown.withColumn("_number", number).where(F.col("_number") <= MOST_LOOKED_AT).limit(MOST_LETTERS)
    letters: dict[str | None, list[Letter]] = {}
    for of, topic, at, named in looked_at.select("of", "topic", time, "headers").collect():
        letters.setdefault(of, []).append(Letter.of(topic, named, at))
    return {of: _told(those, dlq) for of, those in letters.items()}


def _told(letters: Sequence[Letter], dlq: Dlq) -> tuple[str, str]:
    of = unknown_headers.OF_NO_PROFILE + (", of those that were looked at," if len(letters) == MOST_LOOKED_AT else "")
    said = unknown_headers.sentence(Counter(name for letter in letters for name in letter.all_names), len(letters), of)
    made = proposals(letters, dlq)
    return " ".join([said, *(proposal.said for proposal in made)]), "\n\n".join(proposal.toml for proposal in made)


def _nearest(lacking: DataFrame, profiles: tuple[Profile, ...]) -> dict[str | None, str]:
    """Return, by scope, a sentence on the profiles that come nearest to rows, and on what these lack."""
    counts: dict[str | None, Counter[tuple[str, tuple[str, ...]]]] = {}
    for of, plan, number in headers.plans_by(lacking, "of", profiles):
        if plan.own is not None and plan.lacking:
            counts.setdefault(of, Counter())[plan.own.profile.name, plan.lacking] += number
    return {of: unknown_headers.nearest(of_scope) for of, of_scope in counts.items()}


@cache
def _columns(dlq: Dlq) -> list[Column]:
    """Return the contract's columns; cached, because building them takes hundreds of JVM calls."""
    coordinates = ("topic", "topic_id", "partition", "offset", "timestamp", "timestamp_type")
    kip_1317 = F.col("header_profile").eqNullSafe("kip-1317")
    kip_1191 = F.col("header_profile").eqNullSafe("kip-1191")
    timed = F.col("routed_at_text").isNotNull()
    routed_at = _time_of_iso_8601("routed_at_text")
    original_timestamp = columns.time_of_millis(F.col("original_timestamp_text").try_cast("bigint"))
    values = {
        "disposition": F.when(kip_1317, F.col("disposition_text")).when(kip_1191, _inferred_disposition()),
        "disposition_source": F.when(kip_1317 & F.col("disposition_text").isNotNull(), "header")
        .when(kip_1191 & _inferred_disposition().isNotNull(), "message")
        .otherwise("unknown"),
        "original_topic_id": F.when(
            F.array_contains("header_profiles", "kip-1191") & _is_topic_id(F.col("original_topic_text")),
            F.col("original_topic_text"),
        ),
        "original_partition": _whole("original_partition_text", INT32, "int"),
        "original_offset": _whole("original_offset_text", INT64, "bigint"),
        "original_timestamp": original_timestamp,
        "delivery_count": _whole("delivery_count_text", INT32, "int"),
        "routed_at": F.when(timed, routed_at).otherwise(F.col("timestamp")),
        "routed_at_source": F.when(timed, "header").otherwise("kafka"),
        "payload_copied": F.when(kip_1317 | kip_1191, F.col("key").isNotNull() | F.col("value").isNotNull()).when(
            F.col("header_profile") != owners.UNKNOWN, True
        ),
        "control_marker_suspected": (kip_1317 | kip_1191) & _looks_like_a_control_marker(),
        "_content_hash": _content_hash(),
        "fingerprint_version": F.lit(VERSION),
        "owner": F.expr(owners.sql("{}_text", topic="topic")),
        "required_profile": _required_profile(dlq),
    }
    is_mapped = ~F.col("header_profile").isin(owners.UNKNOWN, *(profile.name for profile in PROFILES))
    disposition = F.when(is_mapped, F.col("disposition_text"))
    values |= {
        "disposition": F.coalesce(disposition, values["disposition"]),
        "disposition_source": F.when(disposition.isNotNull(), "header").otherwise(values["disposition_source"]),
        "original_timestamp": F.when(is_mapped, _time("original_timestamp_text")).otherwise(original_timestamp),
        "routed_at": F.when(is_mapped & timed, _time("routed_at_text")).otherwise(values["routed_at"]),
        "undecoded_fields": F.when(
            is_mapped, F.array_compact(F.array(*_undecoded(profiles_of(dlq))).cast("array<string>"))
        ),
    }
    values |= {field: F.col(f"{field}_text") for field in FIELDS if field not in values}
    values = {name: computed_once(value) for name, value in values.items()}
    values |= {f"dlq_{name}": F.col(name) for name in coordinates}
    return [values.get(column.name, F.col(column.name)).alias(column.name) for column in CONTRACT.columns]


def _undecoded(profiles: tuple[Profile, ...]) -> list[Column]:
    """Return the fields whose text does not fit their encoding and type, except those that have a rule for it."""
    fields = dict.fromkeys(field for profile in profiles if profile.kind != "specified" for field in profile.encodings)
    undecoded = []
    for field in fields:
        text = F.col(f"{field}_text")
        if field in ("original_partition", "original_offset"):
            continue
        if field in ("original_timestamp", "routed_at"):
            holds = text.rlike(MILLIS) | text.rlike(ISO_8601_UTC)
        elif field == "delivery_count":
            holds = text.rlike(INT32)
        elif all(profile.encodings.get(field, "text") in ("text", "throwable") for profile in profiles):
            continue
        else:  # 0x... marks bytes that could not be read as a number
            holds = ~text.startswith("0x")
        if f"{field}.utf8" in UTF8_RULES:
            holds = holds | F.coalesce(F.array_contains("undecodable_headers", field), F.lit(False))
        undecoded.append(F.when(~holds, F.lit(field)))
    return undecoded


def _inferred_disposition() -> Column:
    message, (first, *others) = F.col("error_message_text"), DISPOSITION_OF_MESSAGE.items()
    inferred = F.when(message == first[0], first[1])
    for text, disposition in others:
        inferred = inferred.when(message == text, disposition)
    return inferred


def _is_topic_id(text: Column) -> Column:
    return (F.length(text) == TOPIC_ID_LENGTH) & text.rlike(TOPIC_ID)


def _whole(name: str, pattern: str, type_: str) -> Column:
    """Return the number if the text has the contract's pattern, else null: a cast alone never decides."""
    return F.when(F.col(name).rlike(pattern), F.col(name).try_cast(type_))


def _time_of_iso_8601(name: str) -> Column:
    """Return the time if the text is a UTC time in the contract's form; digits beyond microseconds are cut off."""
    text = F.col(name)
    time = F.regexp_extract(text, r"T([0-9:]+(?:\.[0-9]{1,6})?)", 1)
    seconds = F.when(F.length(time) == len("02:41"), F.concat(time, F.lit(":00"))).otherwise(time)
    utc = F.concat(F.substring(text, 1, len("2026-11-21")), F.lit(" "), seconds, F.lit("Z"))
    return F.when(text.rlike(ISO_8601_UTC), utc.try_cast("timestamp"))


def _time(name: str) -> Column:
    """Return the time if the text is epoch milliseconds or ISO-8601 in UTC."""
    millis = F.when(F.col(name).rlike(MILLIS), F.col(name).try_cast("bigint"))
    return F.coalesce(columns.time_of_millis(millis), _time_of_iso_8601(name))


def _looks_like_a_control_marker() -> Column:
    """Tell whether key and value have the bytes of a commit or abort marker.

    The key of a marker is version and type (int16 each), its value version and an int32. A record can have these bytes
    by chance, for example with the integer 1 as key: the log of the source topic decides.
    """
    marker = F.col("key").isin(b"\0\0\0\0", b"\0\0\0\1")
    version = F.substring(F.col("value"), 1, 2) == F.lit(b"\0\0")
    return F.coalesce(marker & (F.length("value") == 6) & version, F.lit(False))


def _content_hash() -> Column:
    """Return a hash that tells null from empty and one header from another: xxhash64 itself skips nulls."""
    content = [F.col(name) for name in ("timestamp", "timestamp_type", "key", "value", "headers")]
    nulls = F.transform(
        "headers", lambda header: F.struct(header.isNull(), header["key"].isNull(), header["value"].isNull())
    )
    return F.xxhash64(*content, *(column.isNull() for column in content), nulls)


def _required_profile(dlq: Dlq) -> Column:
    required = F.lit(None).cast("string")
    for rule in reversed(dlq.require):
        required = F.when(F.col("topic").rlike(globs.regex(rule.topic)), F.lit(rule.profile)).otherwise(required)
    return required
