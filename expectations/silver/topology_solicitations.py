"""Contract of silver.topology_solicitations: when brokers asked for a description, and whether a push followed."""

from expectations.contract import Column, Contract
from expectations.rules import at_least, is_true, not_null
from expectations.streams_groups import GROUP

CONTRACT = Contract(
    table="silver.topology_solicitations",
    description="One row per heartbeat whose response asked the member to push its topology description (KIP-1331).",
    columns=(
        *GROUP,
        Column("member_id", "string", "Member that was asked."),
        Column("connection", "string", "Connection of the heartbeat."),
        Column("correlation_id", "int", "Number of the heartbeat on its connection."),
        Column("solicited_at", "timestamp", "When the member was asked.", (not_null("A heartbeat has a time."),)),
        Column("topology_epoch", "int", "Epoch that the group was at, as far as the landed requests tell."),
        Column(
            "attempt",
            "int",
            "1 for the first time since a push was accepted, the epoch changed or the group was gone.",
            (at_least(1),),
        ),
        Column(
            "seconds_since_previous", "double", "Seconds since the group was asked before; null for the first attempt."
        ),
        Column(
            "least_back_off_seconds",
            "double",
            "Back-off of KIP-1331 before this attempt, 30 s doubling to 1 h, less 20 % jitter; null for the first.",
        ),
        Column(
            "too_early",
            "boolean",
            "True where the broker asked sooner than that: mostly because it restarted and forgot the back-off.",
        ),
        Column(
            "although_stored",
            "boolean",
            "True where a description of that epoch was stored, by the last accepted push or describe: a broker asks "
            "so after it cleaned up an empty group, and must not otherwise.",
        ),
        Column("although_stale", "boolean", "True where the same answer calls the member's topology stale."),
        Column("pushed_at", "timestamp", "First push of the member after it and before it was asked again; else null."),
        Column("push_error_code", "int", "Error code of that push; 0 is success."),
        Column(
            "followed",
            "boolean",
            "True where a push followed.",
            (is_true("as_pushed", "followed = (pushed_at IS NOT NULL)", "What followed has a time."),),
        ),
        Column("seconds_to_push", "double", "Seconds from the question to that push's answer."),
    ),
    grain=("cluster", "group_id", "connection", "correlation_id", "solicited_at"),
)
