"""Contract of gold.replays: the records of each plan, eligible or not, with the bytes that a run produces."""

from expectations.bronze.dlq_records import HEADERS
from expectations.contract import Column, Contract
from expectations.replays import ATTEMPT, CLUSTER, FIRST, GROUP, LETTER, PLAN_ID, SOURCE
from expectations.rules import is_true, not_null, one_of

CONTRACT = Contract(
    table="gold.replays",
    description="One row per plan and record that it chose, with what is produced, or why it is not eligible.",
    columns=(
        CLUSTER,
        PLAN_ID,
        *LETTER,
        *SOURCE,
        Column("source_timestamp", "timestamp", "Timestamp of the record that failed, where it is known."),
        GROUP,
        Column("incident_id", "string", "Incident in gold.dlq_incidents that the record is of."),
        ATTEMPT,
        Column("position", "int", "Place in the order of the plan, from 0; null: it is not eligible."),
        Column(
            "reasons",
            "array<string>",
            "Codes of the reasons why the record is not eligible; empty: it is.",
            (
                not_null(),
                is_true("or_a_position", "(position IS NULL) = (size(reasons) > 0)", "What is eligible has a place."),
            ),
        ),
        Column("rule", "string", "Name of the remediation rule that decided; null: none applied."),
        Column("action", "string", "What it says.", (one_of("REPLAY", "HOLD", "DISCARD", "REVIEW"),)),
        Column("target_topic", "string", "Topic that the record goes to."),
        Column("target_partition", "int", "Partition that it goes to; null: its key decides."),
        Column("key", "binary", "Key to produce.", content="key"),
        Column("value", "binary", "Value to produce.", content="payload"),
        Column("headers", HEADERS, "Headers to produce, without those that the replay adds.", content="headers"),
        Column(
            "payload_from",
            "string",
            "Where key and value come from: the dead letter, or the original topic.",
            (one_of("dlq", "original"),),
        ),
        Column("headers_lost", "boolean", "True: the headers of the record that failed are lost."),
        Column("is_transformed", "boolean", "True: the transform changed key, value or headers."),
        *FIRST,
        Column("dead_lettered_at", "timestamp", "When the dead letter was written, where it is known.", later=True),
    ),
    grain=("cluster", "plan_id", "dlq_topic", "dlq_topic_id", "dlq_partition", "dlq_offset"),
)
