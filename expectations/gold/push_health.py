"""Contract of gold.push_health: how often the pushes of each group succeed or fail, and how brokers ask for them."""

from expectations.contract import Column, Contract
from expectations.rules import at_least, is_true, one_of
from expectations.streams_groups import GROUP

CONTRACT = Contract(
    table="gold.push_health",
    description="One row per group that pushed a topology description or was asked for one.",
    columns=(
        *GROUP,
        Column("push_count", "bigint", "Pushes.", (at_least(0),)),
        Column("accepted_count", "bigint", "Pushes that brokers accepted."),
        Column(
            "refused_count",
            "bigint",
            "Pushes that brokers refused.",
            (is_true("the_rest", "accepted_count + refused_count = push_count", "A push is accepted or refused."),),
        ),
        Column("plugin_failure_count", "bigint", "Refused pushes that failed in the plugin (error 135)."),
        Column(
            "permanent_failure_count",
            "bigint",
            "Those after which no member was asked at that epoch in 72 minutes of heartbeats logged without a gap: no "
            "back-off lasts longer.",
        ),
        Column("transient_failure_count", "bigint", "Those after which a member was asked again at that epoch."),
        Column("unknown_failure_count", "bigint", "The rest: the landed requests do not tell."),
        Column(
            "last_failure",
            "string",
            "The plugin's last failure: permanent, transient or unknown; null without one.",
            (one_of("permanent", "transient", "unknown"),),
            content="text",
        ),
        Column("error_names", "array<string>", "Errors of refused pushes, in order of the alphabet."),
        Column("first_pushed_at", "timestamp", "First push."),
        Column("last_pushed_at", "timestamp", "Last push."),
        Column("median_ms", "double", "Median time of a push on the broker, in milliseconds."),
        Column("p95_ms", "double", "95th percentile of it."),
        Column("max_ms", "double", "Longest."),
        Column("throttled_count", "bigint", "Pushes whose answer told the client to wait because of a quota."),
        Column("max_throttle_time_ms", "int", "Longest such wait, in milliseconds; null without pushes."),
        Column("solicitation_count", "bigint", "How often members were asked to push.", (at_least(0),)),
        Column("followed_count", "bigint", "How often a push followed."),
        Column("unanswered_count", "bigint", "How often none did."),
        Column("median_seconds_to_push", "double", "Median seconds from question to answered push."),
        Column("most_attempts", "int", "Longest row of questions without an accepted push."),
        Column("too_early_count", "bigint", "Questions sooner than KIP-1331's back-off allows."),
        Column("shortest_gap_seconds", "double", "Shortest time between questions in a row; null without two."),
        Column(
            "although_stored_count",
            "bigint",
            "Questions although a description of the group's epoch was stored; lawful after the broker cleaned up an "
            "empty group.",
        ),
        Column("although_stale_count", "bigint", "Questions to members whose topology the same answer calls stale."),
        Column("first_refused_at", "timestamp", "First push that was refused.", later=True),
        Column("last_refused_at", "timestamp", "Last push that was refused.", later=True),
    ),
    grain=("cluster", "group_id"),
)
