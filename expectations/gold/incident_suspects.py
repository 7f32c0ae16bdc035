"""Contract of gold.incident_suspects: what changed shortly before an incident, and what its records share."""

from expectations.contract import Column, Contract
from expectations.incidents import CLUSTER
from expectations.rules import at_least, is_true, not_null, one_of

KINDS = (
    "deployment",
    "topology",
    "writer_topology",
    "new_group",
    "new_client",
    "producer",
    "dlq_write_failure",
    "broker_restart",
    "missing_headers",
    "header",
    "schema_id",
    "key_prefix",
    "client",
)

CONTRACT = Contract(
    table="gold.incident_suspects",
    description="One row per incident and suspect: a change in the day before its first record, or a shared attribute.",
    columns=(
        CLUSTER,
        Column("incident_id", "string", "Incident in gold.dlq_incidents.", (not_null(),)),
        Column("rank", "int", "1 is the most suspect.", (not_null(), at_least(1))),
        Column("kind", "string", f"{', '.join(KINDS)}.", (not_null(), one_of(*KINDS))),
        Column(
            "name",
            "string",
            "Group, application, client, header, node or DLQ topic; which part has the schema id; what was deployed.",
        ),
        Column("changed_at", "timestamp", "When it changed; null for an attribute."),
        Column(
            "distance_seconds",
            "bigint",
            "From the change to the incident's first record; 0 if it came later, in the minute after.",
            (at_least(0),),
        ),
        Column(
            "record_count", "bigint", "Records that have the attribute; null of a client, as dead letters tell none."
        ),
        Column(
            "share",
            "double",
            "Their share of the incident's records; of a client, the least share of its source records.",
        ),
        Column(
            "share_elsewhere",
            "double",
            "Share of others of the topic, as in gold.dlq_incidents; null: too few of them.",
        ),
        Column(
            "score",
            "double",
            "Weight of the kind, halved with each hour of distance; for an attribute the difference of the shares.",
            (not_null(), is_true("positive", "score >= 0", "A score is not negative.")),
        ),
        Column("sentence", "string", "The suspect in words; names no value of a header or key.", (not_null(),)),
    ),
    grain=("cluster", "incident_id", "kind", "name"),
)
