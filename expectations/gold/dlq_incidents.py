"""Contract of gold.dlq_incidents: what is wrong, since when, how wide, and how that is known."""

from expectations.contract import Column, Contract
from expectations.incidents import CLUSTER, FINGERPRINT, OWNER, SIGNATURE
from expectations.rules import is_true, not_null, one_of
from expectations.silver.dlq_episodes import COUNTS, ESCALATIONS, EXTENT, IDENTITY, INCIDENT_ID, TIMES


def _share(name: str, comment: str) -> Column:
    return Column(
        name, "double", comment, (is_true("share", f"{name} BETWEEN 0 AND 1", "A share is between 0 and 1."),)
    )


CONTRACT = Contract(
    table="gold.dlq_incidents",
    description="One row per incident: an episode of an error with its verdict; merged ids have a row without counts.",
    columns=(
        CLUSTER,
        INCIDENT_ID,
        FINGERPRINT,
        *SIGNATURE,
        *IDENTITY,
        *TIMES,
        *COUNTS,
        *EXTENT,
        Column(
            "verdict",
            "string",
            "POISON_PILL, KEY_LOCAL, PARTITION_LOCAL, PRODUCER_LOCAL, SYSTEMIC, REJECTION, FLOOD or UNDETERMINED.",
            (
                not_null("An incident with records has a verdict.").where("record_count > 0"),
                one_of(
                    "POISON_PILL",
                    "KEY_LOCAL",
                    "PARTITION_LOCAL",
                    "PRODUCER_LOCAL",
                    "SYSTEMIC",
                    "REJECTION",
                    "FLOOD",
                    "UNDETERMINED",
                ),
            ),
        ),
        Column("sentence", "string", "The verdict in words."),
        Column("would_change", "string", "Which figure would change the verdict."),
        Column("severity", "string", "critical, high, medium or low.", (one_of("critical", "high", "medium", "low"),)),
        Column("severity_reasons", "array<string>", "Why, the strongest reason first."),
        _share("offset_share", "Share of the records around the source records that was dead-lettered, or of offsets."),
        Column(
            "offset_share_of",
            "string",
            "What it is a share of: records that landed segments or acknowledgements tell of, else offsets.",
            (
                one_of(
                    "records in landed segments",
                    "acknowledged records",
                    "offsets",
                    "offsets that do not look like markers",
                ),
            ),
        ),
        Column(
            "window_offset_count",
            "bigint",
            "Offsets from the first to the last source record, of all partitions; null of poison pills.",
        ),
        Column(
            "window_record_count",
            "bigint",
            "Records on these offsets, or around poison pills, as offset_share_of says; null: no other feed tells.",
        ),
        Column("partition", "int", "Partition with most source records."),
        _share("partition_share", "Its share of the source records; null if too few name theirs."),
        Column("partition_count", "int", "How many partitions the topic has at least."),
        Column("partition_count_hit", "int", "Partitions with dead letters of the incident."),
        _share("key_share", "Share of the records that the 3 keys with most have, at least; null if keys are unknown."),
        Column("attribute_kind", "string", "Kind of an attribute that nearly all records share: header, client, ..."),
        Column("attribute_name", "string", "Name of the header or client, or which part has the schema id."),
        Column("attribute_value", "bigint", "The schema id, or a hash of the value."),
        _share("attribute_share", "Share of the records that has it."),
        _share("attribute_share_elsewhere", "Share of others of the topic that has it; null if there are too few."),
        Column(
            "attribute_compared_with",
            "string",
            "These others: delivered messages, where acknowledgements tell, else other dead letters.",
            (one_of("delivered messages", "other dead letters"),),
        ),
        Column("is_rejection", "boolean", "True: the application refused the records; null: nothing tells."),
        OWNER,
        ESCALATIONS,
    ),
    grain=("cluster", "incident_id"),
)
