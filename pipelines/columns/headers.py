"""headers -> fields: what a dead-letter record's headers say, by the profile of their last writer.

``header_sets`` plans each shape of header names once, in Python. Here Spark finds the shapes of a batch, joins their
plans, and reads the values at the indexes that a plan names. So the cost of a record does not grow with the number of
profiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from expectations.bronze.dlq_records import HEADERS
from expectations.rules import INT32, INT64
from expectations.silver.dlq_records import HOPS
from pipelines.columns import globs
from pipelines.columns.envelopes import ENVELOPE, at_path, envelope
from pipelines.columns.header_cuts import Shape
from pipelines.columns.header_sets import MOST_WEIGHED, Hop, Plan, Planner, planner_of
from pipelines.columns.profiles import FIELDS, PROFILES, TOPIC, Encoding, Profile

if TYPE_CHECKING:
    from pyarrow import Table  # type: ignore[import-untyped]

FEW_KNOWN = 3  # with so many headers that profiles know, these alone tell whether they look like a writer's
ERROR_WORDS = (
    r"exception|stack.?trace|dead.?letter|(?:^|[^a-z])dl[qt](?:[^a-z]|$)"
    r"|(?:error|failure).?(?:message|msg|class|type|reason|cause)"
)
COORDINATE_WORDS = ("topic", "offset|partition")
HEX_SHOWN = 64  # bytes of a binary header of the wrong length that are shown as text
TEXT, THROWABLE, URI, INT32_CODE, INT64_CODE, INTEGER = range(6)
CODES: dict[Encoding, int] = {
    "text": TEXT,
    "throwable": THROWABLE,
    "uri": URI,
    "int32": INT32_CODE,
    "int64": INT64_CODE,
    "integer": INTEGER,
}
HOP_FIELDS = {
    "topic": "original_topic",
    "partition": "original_partition",
    "offset": "original_offset",
    "consumer_group": "consumer_group",
}


@dataclass(frozen=True)
class Plans:
    """The plans of all shapes of a batch; ``by_topic`` has the shapes of each cluster's DLQ topic.

    With each shape stands whether its records' headers look like a writer's.
    """

    planner: Planner
    by_topic: dict[tuple[str | None, str | None], set[tuple[Shape, bool]]]

    @cached_property
    def table(self) -> Table:
        """A row for each shape, with its plan, in the columns that ``decode`` joins."""
        import pyarrow as arrow

        shapes = sorted({shape for shapes in self.by_topic.values() for shape, _ in shapes}, key=repr)
        rows = [_row(shape, self.planner.plan(shape)) for shape in shapes]
        return arrow.Table.from_pylist(rows, _schema())


def shapes_of(records: DataFrame, profiles: tuple[Profile, ...] = PROFILES) -> Plans:
    """Plan the shapes of rows of bronze.dlq_records; one query finds them."""
    decoder = _decoder_of(planner_of(profiles))
    looks = F.when(F.size("_known") < FEW_KNOWN, look_like_a_writers("headers")).otherwise(F.lit(False))
    shaped = decoder.shaped(records).select("cluster", "topic", "_shape", looks.alias("looks")).distinct()
    by_topic: dict[tuple[str | None, str | None], set[tuple[Shape, bool]]] = {}
    for cluster, topic, fields, others_look in shaped.collect():
        shape = _shape(*fields)
        looks_like_a_writers = others_look or _names_look_like_a_writers(shape.names)
        by_topic.setdefault((cluster, topic), set()).add((shape, looks_like_a_writers))
    return Plans(decoder.planner, by_topic)


def plans_by(records: DataFrame, column: str, profiles: tuple[Profile, ...]) -> list[tuple[str | None, Plan, int]]:
    """Return the plans of rows of bronze.dlq_records by a column, with their number; one query counts them."""
    decoder = _decoder_of(planner_of(profiles))
    shaped = decoder.shaped(records).groupBy(column, "_shape").count()
    return [(key, decoder.planner.plan(_shape(*shape)), number) for key, shape, number in shaped.collect()]


def _shape(
    names: list[str],
    marks: list[int],
    topics: list[str | None] | None,
    topic: str | None,
    same: list[int] | None,
) -> Shape:
    return Shape(
        tuple(names),
        tuple(marks),
        None if topics is None else tuple(topics),
        topic,
        None if same is None else tuple(same),
    )


def look_like_a_writers(headers: str) -> Column:
    """Tell whether headers look like those of a writer of dead letters: their names tell a coordinate or an error."""

    def any_name(pattern: str) -> Column:
        return F.exists(headers, lambda header: F.lower(header["key"]).rlike(pattern))

    topic, within = map(any_name, COORDINATE_WORDS)
    return F.coalesce((topic & within) | any_name(ERROR_WORDS), F.lit(False))


def _names_look_like_a_writers(names: Sequence[str]) -> bool:
    """Tell the same of names alone."""
    topic, within, error = (
        any(re.search(words, name.lower()) for name in names) for words in (*COORDINATE_WORDS, ERROR_WORDS)
    )
    return (topic and within) or error


def decode(records: DataFrame, plans: Plans) -> DataFrame:
    """Decode the column ``headers``, one row for each row; ``plans`` include those of these rows.

    Adds ``reserved_header_collision`` and:
    - ``header_profile``: null if no profile knows the record
    - ``header_profiles``: both names if a share group wrote both of its sets
    - ``<field>_text`` for each of FIELDS: null if absent, empty or, of a number, -1 (which writers other than share
      groups write for unknown); a binary number of the wrong length as ``0x...``
    - ``missing_headers``: names that the record lacks, if no set is complete; ``missing_fields``: the fields they fill
    - ``undecodable_headers``: fields whose bytes are not UTF-8; null if none
    - ``earlier_hops``: oldest first
    - ``user_headers``: in order, all headers except those of the record's profile and of profiles whose set is complete
    """
    decoder = _decoder_of(plans.planner)
    names = [F.col(column) for column in records.columns]
    shaped = decoder.shaped(records)
    planned = F.broadcast(records.sparkSession.createDataFrame(plans.table))
    joined = shaped.join(planned, on=F.col("_shape") == F.col("_plan_shape"), how="left")
    for columns in decoder.projections:
        joined = joined.select("*", *columns)
    return joined.select(*names, *decoder.decoded)


def read(
    headers: Sequence[tuple[str | None, bytes | None] | None], profiles: tuple[Profile, ...], topic: str | None = None
) -> tuple[Plan, dict[str, str]]:
    """Return the plan of one record without an envelope, and the texts of its known fields, as Spark reads them."""
    planner = planner_of(profiles)
    keyed = [(planner.known(header[0]), header[1]) for header in headers if header is not None]
    known = [(name, value) for name, value in keyed if name is not None]
    plan = planner.plan(planner.shape(known, topic))
    texts: dict[str, str] = {}
    if plan.own:
        for field, indexes in plan.own.indexes.items():
            value = next((known[index][1] for index in indexes if index < len(known) and known[index][1]), None)
            said = text(value, plan.own.profile.encodings.get(field, "text"))
            if said and not (said == "-1" and field in NUMBERS and plan.own.profile.says_minus_one):
                texts[field] = said
        before = plan.own.profile.before_group.replace(TOPIC, texts.get("original_topic", TOPIC))
        if before and topic and topic != before and topic.startswith(before):
            texts.setdefault("consumer_group", topic.removeprefix(before))
    return plan, texts


def text(value: bytes | None, encoding: Encoding) -> str | None:
    """Return the text of a header's value by its encoding; null if it is empty."""
    if not value:
        return None
    if encoding in ("text", "throwable", "uri"):
        said = value.decode("utf-8", "replace")
        return said.split(": ", 1)[0] if encoding == "throwable" else said.rsplit("/", encoding == "uri")[-1]
    if len(value) in {"int32": (4,), "int64": (8,)}.get(encoding, range(1, 9)):
        return str(int.from_bytes(value, "big", signed=True))
    return f"0x{value[:HEX_SHOWN].hex().upper()}"


class _Decoder:
    """The columns that find the shapes of records, and that read values by the plan of a shape.

    They are kept, because building them takes thousands of JVM calls.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.profiles = planner.profiles

    def shaped(self, records: DataFrame) -> DataFrame:
        """Add ``_known``, the headers that any profile knows, the values of paths, and the columns of the shape."""
        if self.planner.paths:
            records = records.withColumn(ENVELOPE, self._envelope).withColumn("_paths", self._paths)
        return records.withColumn("_known", self._known_headers).withColumn("_shape", self._shape)

    @cached_property
    def _envelope(self) -> Column:
        return envelope(self.profiles)

    @cached_property
    def _paths(self) -> Column:
        return F.array(*map(at_path, self.planner.paths))

    @cached_property
    def _known_headers(self) -> Column:
        planner = self.planner
        headers = F.coalesce("headers", F.array().cast(HEADERS))
        if not planner.prefixes:
            return F.filter(headers, lambda header: header["key"].isin(*planner.names))
        renamed = F.transform(
            headers,
            lambda header: F.struct(self._known(header["key"]).alias("key"), header["value"].alias("value")),
        )
        return F.filter(renamed, lambda header: header["key"].isNotNull())

    @cached_property
    def _shape(self) -> Column:
        return F.struct(
            F.col("_known.key").alias("names"),
            self._marks().alias("marks"),
            self._if_topics_tell(self._topics()).cast("array<string>").alias("topics"),
            self._if_topics_tell(F.col("topic")).cast("string").alias("topic"),
            self._if_topics_tell(self._same()).cast("array<int>").alias("same"),
        )

    def _known(self, key: Column) -> Column:
        """Return a header's name as a shape has it; null if no profile knows it."""
        name = F.when(key.isin(*self.planner.names), key)
        for prefix in self.planner.prefixes:
            name = name.when(key.startswith(prefix), F.lit(f"{prefix}*"))
        return name

    def _marks(self) -> Column:
        planner = self.planner
        globs_ = [F.when(F.col("topic").rlike(globs.regex(glob)), at) for at, glob in enumerate(planner.globs)]
        paths = [
            F.when(F.get("_paths", F.lit(at)).isNotNull(), len(planner.globs) + at) for at in range(len(planner.paths))
        ]
        marks = F.array_compact(F.array(*globs_, *paths)) if globs_ or paths else F.array()
        return marks.cast("array<int>")

    def _if_topics_tell(self, column: Column) -> Column:
        """Return a column if several headers tell a topic, so that topics may tell the order of the sets; else null."""
        topics = F.filter("_known", self._tells_a_topic)
        return F.when((F.size(topics) > 1) & (F.size("_known") <= MOST_WEIGHED), column)

    def _tells_a_topic(self, header: Column) -> Column:
        return header["key"].isin(*self.planner.topic_names)

    def _topics(self) -> Column:
        def topic_of(header: Column) -> Column:
            return F.when(self._tells_a_topic(header), F.make_valid_utf8(header["value"].cast("string")))

        return F.transform("_known", topic_of)

    def _same(self) -> Column:
        """Return, for headers that tell a coordinate, where the same header stands first, and else where they stand."""

        def first(header: Column, at: Column) -> Column:
            is_coordinate = header["key"].isin(*self.planner.coordinate_names)
            return F.when(is_coordinate, F.array_position("_known", header) - 1).otherwise(at)

        return F.transform("_known", first)

    @cached_property
    def projections(self) -> tuple[list[Column], ...]:
        """Return the columns that each projection adds before the last one."""
        values = F.col("_known.value")
        if self.planner.paths:
            values = F.concat(values, F.transform("_paths", lambda text: text.cast("binary")))
        return (
            [values.alias("_values")],
            [*(self._bytes(field).alias(f"_{field}") for field in FIELDS)],
            [*(self._text(field).alias(f"{field}_text") for field in FIELDS)],
        )

    def _group(self, said: Column, profile: Column, source: Column, topic: Column) -> Column:
        """Return the group that headers say, else the one that the DLQ topic's name holds if it is the default."""
        groups = [said]
        for candidate in self.profiles:
            if candidate.before_group:
                around = candidate.before_group.split(TOPIC)
                before = F.concat(F.lit(around[0]), source, F.lit(around[1]))
                group = F.nullif(F.substring(topic, F.length(before) + 1, F.length(topic)), F.lit(""))
                groups.append(F.when((profile == candidate.name) & topic.startswith(before), group))
        return F.coalesce(*groups)

    @cached_property
    def decoded(self) -> list[Column]:
        """Return the columns that ``decode`` adds."""
        empty = F.array().cast("array<string>")
        return [
            F.col("_plan_profile").alias("header_profile"),
            F.coalesce("_plan_profiles", empty).alias("header_profiles"),
            F.coalesce("_plan_missing_headers", empty).alias("missing_headers"),
            F.coalesce("_plan_missing_fields", empty).alias("missing_fields"),
            *(F.col(f"{field}_text") for field in FIELDS if field != "consumer_group"),
            self._group(
                F.col("consumer_group_text"), F.col("_plan_profile"), F.col("original_topic_text"), F.col("topic")
            ).alias("consumer_group_text"),
            self._undecodable().alias("undecodable_headers"),
            self._earlier_hops().alias("earlier_hops"),
            F.coalesce("_plan_has_strays", F.lit(False)).alias("reserved_header_collision"),
            self._user_headers().alias("user_headers"),
        ]

    def _bytes(self, field: str) -> Column:
        """Return the bytes that fill a field: the first that are not empty, else the last ones."""
        at = FIELDS.index(field)
        most = max(sum(header.field == field for header in profile.headers) for profile in self.profiles)
        if not most:
            return F.lit(None).cast("binary")
        values = [F.get("_values", F.get(F.get("_plan_at", F.lit(at)), F.lit(turn))) for turn in range(most)]
        *others, last = values
        return F.coalesce(*(F.nullif(value, F.lit(b"")) for value in others), last)

    def _code(self, field: str) -> Column:
        return F.get("_plan_codes", F.lit(FIELDS.index(field)))

    def _codes(self, field: str) -> set[int]:
        return {CODES[profile.encodings.get(field, "text")] for profile in self.profiles}

    def _text(self, field: str) -> Column:
        text = _decoded(F.col(f"_{field}"), self._code(field), self._codes(field))
        if field in NUMBERS:
            text = F.when(~(F.col("_plan_says_minus_one") & (text == "-1")), text)
        return F.nullif(text, F.lit(""))

    def _undecodable(self) -> Column:
        fields = []
        for field in FIELDS:
            invalid = ~F.is_valid_utf8(F.col(f"_{field}").cast("string"))
            if self._codes(field) - {TEXT, THROWABLE, URI}:
                invalid = invalid & (self._code(field) <= URI)
            fields.append((field, invalid))
        each = F.array_compact(F.array(*(F.when(invalid, F.lit(field)) for field, invalid in fields)))
        return F.when(_any(F.coalesce(invalid, F.lit(False)) for _, invalid in fields), each)

    def _earlier_hops(self) -> Column:
        def hop(planned: Column) -> Column:
            fields = []
            for name, field in HOP_FIELDS.items():
                values = F.transform(planned[name], lambda at: F.get("_values", at))
                value = F.get(F.filter(values, lambda content: F.length(content) > 0), F.lit(0))
                decoded = _decoded(value, planned[f"{name}_code"], self._codes(field), strict=True)
                fields.append(_typed(name, F.nullif(decoded, F.lit(""))).alias(name))
            return F.struct(planned["profile"].alias("profile"), *fields)

        def grouped(hops: Column) -> Column:
            topics = F.concat(F.slice(hops["topic"], 2, F.size(hops)), F.array("original_topic_text"))

            def with_group(hop: Column, at: Column) -> Column:
                group = self._group(hop["consumer_group"], hop["profile"], hop["topic"], F.get(topics, at))
                return hop.withField("consumer_group", group)

            return F.transform(hops, with_group)

        hops = F.transform("_plan_hops", hop).cast(HOPS)
        if any(profile.before_group for profile in self.profiles):
            hops = F.transform(F.array(hops), grouped)[0]
        return F.when(F.size("_plan_hops") > 0, hops).otherwise(F.array().cast(HOPS))

    def _user_headers(self) -> Column:
        def is_kept(header: Column) -> Column:
            key = self._known(header["key"]) if self.planner.prefixes else header["key"]
            return ~F.coalesce(F.array_contains("_plan_taken", key), F.lit(False))

        none = F.array().cast(HEADERS)
        all_taken = F.col("_plan_takes_all") & (F.size("_known") == F.size("headers"))
        return (
            F.when(all_taken, none)
            .when(F.size("_plan_taken") > 0, F.filter("headers", is_kept))
            .otherwise(F.coalesce("headers", none))
        )


@cache
def _decoder_of(planner: Planner) -> _Decoder:
    return _Decoder(planner)


NUMBERS = ("original_partition", "original_offset", "original_timestamp", "delivery_count", "routed_at")
"""Fields of which -1 means unknown, if the writer says it so."""


def _schema() -> Any:
    import pyarrow as arrow

    texts, numbers = arrow.list_(arrow.string()), arrow.list_(arrow.int32())
    hop = [("profile", arrow.string())]
    for name in HOP_FIELDS:
        hop += [(name, numbers), (f"{name}_code", arrow.int32())]
    return arrow.schema(
        {
            "_plan_shape": arrow.struct(
                {"names": texts, "marks": numbers, "topics": texts, "topic": arrow.string(), "same": numbers}
            ),
            "_plan_profile": arrow.string(),
            "_plan_profiles": texts,
            "_plan_missing_headers": texts,
            "_plan_missing_fields": texts,
            "_plan_at": arrow.list_(numbers),
            "_plan_codes": numbers,
            "_plan_hops": arrow.list_(arrow.struct(hop)),
            "_plan_taken": texts,
            "_plan_takes_all": arrow.bool_(),
            "_plan_has_strays": arrow.bool_(),
            "_plan_says_minus_one": arrow.bool_(),
        }
    )


def _row(shape: Shape, plan: Plan) -> dict[str, Any]:
    own = plan.own
    indexes = own.indexes if own else {}
    encodings = own.profile.encodings if own else {}
    missing = [header.field for header in own.profile.headers if header.key in plan.lacking] if own else []
    return {
        "_plan_shape": vars(shape),
        "_plan_profile": own.profile.name if own else None,
        "_plan_profiles": plan.profiles,
        "_plan_missing_headers": plan.lacking,
        "_plan_missing_fields": list(dict.fromkeys(filter(None, missing))),
        "_plan_at": [indexes.get(field, ()) for field in FIELDS],
        "_plan_codes": [CODES[encodings.get(field, "text")] for field in FIELDS],
        "_plan_hops": [_planned_hop(hop) for hop in plan.hops],
        "_plan_taken": plan.taken,
        "_plan_takes_all": set(shape.names) <= set(plan.taken),
        "_plan_has_strays": plan.has_strays,
        "_plan_says_minus_one": own is not None and own.profile.says_minus_one,
    }


def _planned_hop(hop: Hop) -> dict[str, Any]:
    planned: dict[str, Any] = {"profile": hop.profile.name}
    for name, field in HOP_FIELDS.items():
        planned[name] = hop.indexes.get(field, ())
        planned[f"{name}_code"] = CODES[hop.profile.encodings.get(field, "text")]
    return planned


def _decoded(content: Column, code: Column, codes: Iterable[int], strict: bool = False) -> Column:
    """Return the text of bytes by the code of their encoding, one of ``codes``; strict: null if not UTF-8."""
    text = (F.try_validate_utf8 if strict else F.make_valid_utf8)(content.cast("string"))
    lengths = {INT32_CODE: (4, 4), INT64_CODE: (8, 8), INTEGER: (1, 8)}
    numbers = [(number, lengths[number]) for number in sorted(codes) if number in lengths]
    decoded = text
    if THROWABLE in codes:
        decoded = F.when(code == THROWABLE, F.substring_index(text, ": ", 1)).otherwise(decoded)
    if URI in codes:
        decoded = F.when(code == URI, F.substring_index(text, "/", -1)).otherwise(decoded)
    if not numbers:
        return decoded
    fits = _any((code == number) & F.length(content).between(*ends) for number, ends in numbers)
    shown = F.concat(F.lit("0x"), F.hex(F.substring(content, 1, HEX_SHOWN)))
    return F.when(code <= URI, decoded).when(fits, _signed(content)).when(F.length(content) > 0, shown)


def _signed(content: Column) -> Column:
    """Return a big-endian two's complement number of up to 8 bytes in decimal digits."""
    digits = F.hex(content)
    filled = F.when(F.substring(digits, 1, 1) >= "8", F.lpad(digits, 16, "F")).otherwise(digits)
    return F.conv(filled, 16, -10)


def _typed(name: str, text: Column) -> Column:
    if name == "partition":
        return F.when(text.rlike(INT32), text.try_cast("int"))
    if name == "offset":
        return F.when(text.rlike(INT64), text.try_cast("bigint"))
    return text


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(or_, conditions)
