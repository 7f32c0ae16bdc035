"""A condition on dead letters -> the statement for the accepted ones that meet it, with what other tables say."""

from __future__ import annotations

from expectations.owners import OWNER

RECORDS, QUARANTINE, HELD = "silver.dlq_records", "quarantine.dlq_records", "held.dlq_records"
MARKERS, LETTERS, TRANSACTIONS = "silver.dlq_control_markers", "silver.dead_letters", "silver.transactions"
INCIDENTS = "gold.dlq_incidents"
PLANS, REPLAYS, REPLAYED = "gold.replay_plans", "gold.replays", "gold.replayed_records"
OUTCOMES, DISCARDS = "gold.replay_outcomes", "gold.replay_discards"
COLUMNS = (
    *("_bronze_id", "dlq_topic", "dlq_topic_id", "dlq_partition", "dlq_offset", "dlq_timestamp", "header_profile"),
    *("disposition", "original_topic", "original_topic_id", "original_partition", "original_offset"),
    *("original_timestamp", "consumer_group", "error_message", "exception_class", "exception_cause_class"),
    *("exception_stacktrace", "routed_at", "payload_copied", "control_marker_suspected", "key", "value"),
    *(
        "earlier_hops",
        "user_headers",
        "lossy_encoding",
        "_ingested_at",
        "routed_at_source",
        "dlq_timestamp_type",
        "fingerprint_version",
        OWNER,
        "masked",
    ),
)

_COORDINATE = ("dlq_topic", "dlq_partition", "dlq_offset")
LETTER = (*_COORDINATE, "dlq_topic_id")
TABLES = (RECORDS, MARKERS, LETTERS, DISCARDS)  # that `statement_of` reads


def statement_of(text: str) -> str:
    """Return the statement for the accepted dead letters that meet a condition on ``records``, in order."""
    columns = ", ".join(f"records.{name}" for name in COLUMNS)
    here = "{0}.cluster = records.cluster AND " + " AND ".join(f"{{0}}.{name} = records.{name}" for name in _COORDINATE)
    return f"""
        SELECT {columns}, markers.is_control_marker AS is_marker, letters.write_state,
          copies.letters AS copies,
          EXISTS (SELECT 1 FROM {DISCARDS} AS discards WHERE {same_letter("discards")}) AS is_discarded,
          EXISTS (
            SELECT 1 FROM {DISCARDS} AS discards WHERE discards.rule IS NOT NULL AND {same_letter("discards")}
          ) AS is_discarded_by_rule
        FROM {RECORDS} AS records
        LEFT JOIN {MARKERS} AS markers
          ON markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
        LEFT JOIN {LETTERS} AS letters
          ON {here.format("letters")} AND letters.dlq_topic_id <=> records.dlq_topic_id
        LEFT JOIN (
          SELECT cluster, {", ".join(_COORDINATE)}, count(*) AS letters
          FROM {RECORDS}
          GROUP BY cluster, {", ".join(_COORDINATE)}
          HAVING count(*) > 1
        ) AS copies ON {here.format("copies")}
        WHERE records.cluster = :cluster AND ({text})
        ORDER BY records.dlq_topic, records.dlq_partition, records.dlq_offset, records.dlq_topic_id
    """


def same_letter(name: str) -> str:
    """Return the condition that a row of a table is about the dead letter of a row of ``records``.

    A file does not tell the topic's id, which is learned when the topic itself is read: so one id can be missing.
    """
    ids_agree = f"({name}.dlq_topic_id IS NULL OR records.dlq_topic_id IS NULL OR {name}.dlq_topic_id = "
    here = " AND ".join(f"{name}.{column} = records.{column}" for column in ("cluster", *_COORDINATE))
    return f"{here} AND {ids_agree}records.dlq_topic_id)"


IS_REPLAYED = f"SELECT 1 FROM {REPLAYED} AS replayed WHERE {same_letter('replayed')}"
