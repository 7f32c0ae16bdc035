"""Contract of gold.topology_current: what is known of each group's topology, and whether it can be trusted."""

from expectations.contract import Column, Contract
from expectations.exchanges import DEFECTS
from expectations.rules import between, is_true, not_null, one_of
from expectations.streams_groups import GROUP

HEALTH = ("DELETED", "CONFLICT", "PLUGIN_ERROR", "LOST", "REJECTED", "STALE", "NOT_PUSHED", "OK")

CONTRACT = Contract(
    table="gold.topology_current",
    description="One row per streams group that pushed, was asked to, was described or joined, with its last topology.",
    columns=(
        *GROUP,
        Column(
            "health",
            "string",
            "First that applies of DELETED, CONFLICT, PLUGIN_ERROR, LOST, REJECTED, STALE, NOT_PUSHED, OK.",
            (not_null("Every group has a health."), one_of(*HEALTH)),
        ),
        Column("sentence", "string", "What an operator needs to know of it.", (not_null("Health is put in words."),)),
        Column("revision", "int", "Latest revision in gold.topology_revisions; null where no topology is known."),
        Column("source", "string", "Of that revision: pushed or observed; null without one."),
        Column("topology_hash", "string", "Its topology: of the last accepted push, or of a later describe."),
        Column("topology_epoch", "int", "Epoch under which it was last accepted or shown."),
        Column(
            "group_topology_epoch",
            "int",
            "Topology epoch of the group, as the last accepted push, describe or joining member tells.",
        ),
        Column(
            "status",
            "int",
            "What a describe would say, as far as the landed requests tell: 1 NOT_STORED, 2 ERROR, 3 AVAILABLE.",
            (between(1, 3),),
        ),
        Column("status_name", "string", "Name of the status."),
        Column("first_seen_at", "timestamp", "First sign of life."),
        Column(
            "last_seen_at", "timestamp", "Last sign of life: an accepted push or heartbeat, a describe that found it."
        ),
        Column("last_pushed_at", "timestamp", "Last accepted push."),
        Column("last_pushed_by", "string", "Member of the last accepted push."),
        Column("last_observed_at", "timestamp", "Last describe that showed a description."),
        Column("last_attempted_at", "timestamp", "Last push, accepted or refused, since the group was last deleted."),
        Column("last_error_code", "int", "Error code of that push; 0 is success."),
        Column("last_error_name", "string", "Its name."),
        Column("last_error_message", "string", "What the broker said.", content="text"),
        Column("last_described_at", "timestamp", "Last describe of the group that told a status, since a deletion."),
        Column("described_status", "int", "Status that it gave."),
        Column("solicitation_count", "bigint", "How often members were asked for the description since a deletion."),
        Column("last_solicited_at", "timestamp", "When a member was last asked."),
        Column(
            "conflicting_members",
            "array<string>",
            "Members that live and pushed different topologies at the group's epoch.",
        ),
        Column(
            "lost_at",
            "timestamp",
            "When a describe first said that a stored description is not stored; null unless the health is LOST.",
        ),
        Column("deleted_at", "timestamp", "When the group was deleted, or found to be gone; null while it is there."),
        Column("node_count", "int", "Nodes of the description."),
        DEFECTS,
        Column(
            "description",
            "string",
            "The later of the last accepted description and the last that a describe showed, KIP-1331's wire schema as "
            "JSON.",
            (is_true("where_a_revision_is", "revision IS NULL OR description IS NOT NULL", "A revision has one."),),
            content="text",
        ),
    ),
    grain=("cluster", "group_id"),
)
