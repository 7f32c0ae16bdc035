"""Lines of a broker's log, in order -> the DLQ writes that failed, with all that the log says of each, and starts.

An event begins with a line that has a date and a time; the lines up to the next such line continue it. A broker that
cannot write to a DLQ archives the records and logs ``Failed to write to DLQ``, with an exception that can name the
share group and the DLQ topic. If the write itself failed, the event before names the records too, in a
``ShareGroupDLQRecordParameter``. The broker's single sender thread logs both events, one after the other, so they
belong to the same failure.

A node logs several lines at the end of its start, each of one component; each is an event of one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from pipelines.sources import request_log

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FAILED, STARTED = "DLQ_WRITE_FAILED", "BROKER_STARTED"
MOST_LINES = 10_000  # of an event: more than the longest stack trace

_BEGINS = r"^(?!\s|Caused by|\.\.\. )" + request_log.TIME.removeprefix("^")
_ARCHIVED = "Failed to write to DLQ, proceeding to ARCHIVED regardless."
_NAMES_RECORDS = (
    r"(?:Unable to (?:produce|create|coalesce|find)|Exhausted max retries|Received empty|Uncaught error"
    r"|Error enqueueing).*ShareGroupDLQRecordParameter\["
)
_NAMES_GROUP = "share group"

# What a started node says: Kafka since KRaft, and KafkaServer with ZooKeeper; a controller alone says the second one.
_STARTED = (
    r"\[(?:(BrokerServer) id=([0-9]{1,10})\] Transition from STARTING to STARTED"
    r"|(KafkaRaftServer) nodeId=([0-9]{1,10})\] Kafka Server started"
    r"|(GroupCoordinator) id=([0-9]{1,10})\] Startup complete\."
    r"|(KafkaServer) id=([0-9]{1,10})\] started) \("
)

# The kinds of events: any other event, a write that names its records, the end of a write, a start.
_OTHER, _WRITE, _END, _START = 0, 1, 2, 3

_LEGAL = "[a-zA-Z0-9._-]"
_PARAMETER = (
    r"(?s)ShareGroupDLQRecordParameter\[groupId=(.*), topicIdPartition=([a-zA-Z0-9_-]{22}):"
    rf"({_LEGAL}*)-([0-9]{{1,10}}), firstOffset=([0-9]{{1,19}}), lastOffset=([0-9]{{1,19}})"
    r"(?:, deliveryCount=Optional(?:\[([0-9]{1,10})\])?)?"
)
_CAUSE = r"(?s)cause=Optional\[(?:[\w.$]+: )?(.*?)\]\]"
_DLQ_TOPIC = rf"TopicPartitionData\[topicName=({_LEGAL}+)"
_EXCEPTION = (
    r"(?s)proceeding to ARCHIVED regardless[^\n]*\n"
    r"(?:java\.util\.concurrent\.(?:Completion|Execution)Exception: )?"
    r"([\w.$]+)(?:: (.*?))?(?:\n\s+at |\nCaused by|\s*\z)"
)
_ANSWER = r"(?s)(?:isFenced: [a-z]+\) - |client response error )(.*?)\. \("
_GROUP_AND_TOPIC = (
    rf"(?s)share group: (.*?)(?: cannot start with __)?, topic: ({_LEGAL}+?)(?:, prefix: .*)?\.\z",
    rf"(?s)share group (.*) with DLQ topic ({_LEGAL}+?)(?: (?:could|and) .*)?\.\z",
    r"(?s)share group:? (.*?)(?: is empty)?\.\z()",
)


def events(lines: DataFrame) -> DataFrame:
    """Return the events of files as lines: ``_source``, ``line``, ``damage``, ``_occurrence``, and what they are.

    ``_block`` and ``_place`` give the order of ``lines``. For an event that is not kept, ``_kind`` and
    ``line`` are null. The lines of a file before its first event count as one event, as it may have begun in another
    file. ``_event_id`` does not depend on how far the file goes. ``_is_partial`` is true if the event may continue.
    """
    failures = _paired(_assembled(lines.where(F.col("damage").isNull())))
    alike = Window.partitionBy("_source", "_is_other", "_opening").orderBy("_event")
    numbered = failures.withColumn("_occurrence", F.when(F.col("_is_other"), 1).otherwise(F.row_number().over(alike)))
    again = F.when(F.col("_occurrence") > 1, F.concat(F.lit("\n"), F.col("_occurrence").cast("string")))
    parsed = numbered.select(
        "_source",
        F.col("_text").cast("binary").alias("line"),
        F.lit(None).cast("string").alias("damage"),
        "_occurrence",
        F.when(F.col("_is_start"), STARTED).when(~F.col("_is_other"), FAILED).alias("_kind"),
        F.sha2(F.concat("_opening", F.coalesce(again, F.lit(""))).cast("binary"), 256).alias("_event_id"),
        "_is_partial",
    )
    damaged = lines.where(F.col("damage").isNotNull()).select(
        "_source",
        "line",
        "damage",
        F.lit(1).alias("_occurrence"),
        F.lit(None).cast("string").alias("_kind"),
        F.sha2(F.concat_ws("\n", "_source", "damage").cast("binary"), 256).alias("_event_id"),
        F.lit(False).alias("_is_partial"),
    )
    return parsed.union(damaged)


def start(line: Column) -> dict[str, Column]:
    """Return which component of which node an event (binary) says has started; null if it says it of none."""
    text = line.cast("string")
    return {
        "component": F.coalesce(*(_part(text, _STARTED, group) for group in (1, 3, 5, 7))),
        "node_id": F.coalesce(*(_part(text, _STARTED, group) for group in (2, 4, 6, 8))).try_cast("int"),
    }


def failure(line: Column) -> dict[str, Column]:
    """Return what an event (binary) says of a failed write; each part is null if the log does not give it."""
    text = line.cast("string")
    message = _part(text, _EXCEPTION, 2)
    answer = _part(text, _ANSWER, 1)
    groups = [_part(message, pattern, 1) for pattern in _GROUP_AND_TOPIC]
    topics = [_part(message, pattern, 2) for pattern in _GROUP_AND_TOPIC]
    return {
        "consumer_group": F.coalesce(_part(text, _PARAMETER, 1), *groups),
        "dlq_topic": F.coalesce(_part(text, _DLQ_TOPIC, 1), *topics),
        "original_topic_id": _part(text, _PARAMETER, 2),
        "original_topic": _part(text, _PARAMETER, 3),
        "original_partition": _part(text, _PARAMETER, 4).try_cast("int"),
        "first_offset": _part(text, _PARAMETER, 5).try_cast("bigint"),
        "last_offset": _part(text, _PARAMETER, 6).try_cast("bigint"),
        "delivery_count": _part(text, _PARAMETER, 7).try_cast("int"),
        "cause": _part(text, _CAUSE, 1),
        "error_class": _part(text, _EXCEPTION, 1),
        "reason": F.coalesce(F.nullif(answer, F.lit("null")), message, _part(text, _EXCEPTION, 1)),
    }


def _part(text: Column, pattern: str, group: int) -> Column:
    return F.nullif(F.regexp_extract(text, pattern, group), F.lit(""))


def _assembled(lines: DataFrame) -> DataFrame:
    """Return one row per event: its kind, its text (null for other events), and whether it is the last of its file."""
    of_file = Window.partitionBy("_source").orderBy("_block", "_place")
    so_far = of_file.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    text = F.col("line").cast("string")
    begun = (
        F.when(text.rlike(_BEGINS) & text.rlike(_NAMES_RECORDS), _WRITE)
        .when(text.rlike(_BEGINS) & text.rlike(_STARTED), _START)
        .when(text.rlike(_BEGINS) & text.contains(_ARCHIVED), _END)
        .when(text.rlike(_BEGINS) | (F.row_number().over(of_file) == 1), _OTHER)
    )
    marked = lines.select(
        *("_source", "_block", "_place", "line"),
        begun.alias("_begun"),
        F.lead(F.lit(True)).over(of_file).isNull().alias("_ends_file"),
    )
    numbered = marked.withColumns(
        {
            "_event": F.count("_begun").over(so_far),
            "_what": F.last("_begun", ignorenulls=True).over(so_far),
        }
    )
    in_event = Window.partitionBy("_source", "_event").orderBy("_block", "_place")
    kept = (
        numbered.where(F.col("_begun").isNotNull() | (F.col("_what") != _OTHER))
        .withColumn("_nth", F.row_number().over(in_event))
        .where(F.col("_nth") <= MOST_LINES)
    )
    is_told = (F.col("_what") != _OTHER) & ((F.col("_what") != _START) | (F.col("_nth") == 1))
    wanted = F.when(is_told, F.struct("_nth", F.col("line").cast("string").alias("text")))
    in_order = F.transform(F.array_sort("_lines"), lambda line: line["text"])
    return (
        kept.groupBy("_source", "_event", "_what")
        .agg(F.collect_list(wanted).alias("_lines"), F.max("_ends_file").alias("_ends_file"))
        .withColumn("_texts", in_order)
        .select(
            *("_source", "_event", "_what", "_ends_file"),
            F.when(F.col("_what") != _OTHER, F.array_join("_texts", "\n")).alias("_text"),
            F.when(F.col("_what") != _OTHER, F.array_join(F.slice("_texts", 1, 2), "\n")).alias("_opening"),
        )
    )


def _paired(entries: DataFrame) -> DataFrame:
    """Return one row per failure, joining the end of a write to the event that names its records, and per start."""
    is_other, is_start = F.col("_what") == _OTHER, F.col("_what") == _START
    names_group = F.coalesce((F.col("_what") == _END) & F.col("_text").contains(_NAMES_GROUP), F.lit(False))
    in_turn = Window.partitionBy("_source", "_lane").orderBy("_event")
    lanes = entries.withColumn("_lane", F.when(is_other | is_start, 0).when(names_group, 1).otherwise(2))
    ends_former = (F.col("_lane") == 2) & (F.col("_what") == _END) & (F.lag("_what").over(in_turn) == _WRITE)
    joined = lanes.withColumn("_first", F.when(ends_former, F.lag("_event").over(in_turn)).otherwise(F.col("_event")))
    in_order = F.transform(F.array_sort("_texts"), lambda line: line["_text"])
    return (
        joined.groupBy("_source", "_first")
        .agg(
            F.collect_list(F.when(~is_other, F.struct("_event", "_text"))).alias("_texts"),
            F.min_by("_opening", "_event").alias("_opening"),
            F.max(is_other).alias("_is_other"),
            F.max(is_start).alias("_is_start"),
            (~F.max(is_start) & (F.max("_ends_file") | (F.max("_what") == _WRITE))).alias("_is_partial"),
        )
        .select(
            "_source",
            F.col("_first").alias("_event"),
            F.when(~F.col("_is_other"), F.array_join(in_order, "\n")).alias("_text"),
            "_opening",
            "_is_other",
            "_is_start",
            "_is_partial",
        )
    )
