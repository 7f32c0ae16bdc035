"""Contract of silver.message_attributes: clients and headers of acknowledged messages, dead-lettered or not."""

from expectations.contract import Column, Contract
from expectations.incidents import ATTRIBUTE, CLUSTER, OWNER
from expectations.rules import at_least, is_true, not_null


def _of_messages(name: str, comment: str) -> Column:
    rule = is_true("of_messages", f"{name} BETWEEN 0 AND message_count", "They are some of the messages.")
    return Column(name, "bigint", comment, (rule,))


CONTRACT = Contract(
    table="silver.message_attributes",
    description="One row per slice of messages that went through, and per owner, disposition and half hour of others.",
    columns=(
        CLUSTER,
        Column("slice", "string", "Part of gold.message_ledger that the messages are of.", (not_null(),)),
        Column("topic", "string", "Topic of the messages.", (not_null(),)),
        Column("is_dead_lettered", "boolean", "False: no dead letter of the messages has landed.", (not_null(),)),
        Column("consumer_group", "string", "Group that dead-lettered them; null where it names none."),
        Column("disposition", "string", "Why they were dead-lettered; null where nothing tells."),
        Column(
            "half_hour",
            "timestamp",
            "Half hour in which they were dead-lettered, its beginning; null where nothing tells the time.",
        ),
        Column("message_count", "bigint", "Acknowledgements that name a client or headers.", (at_least(1),)),
        _of_messages("named_count", "Those that name a client."),
        _of_messages("headed_count", "Those with headers."),
        Column(
            "attributes",
            f"array<struct<negative: bigint, {ATTRIBUTE}>>",
            "The 32 most common (kind: client or header; name: of either; value: a hash), with negative counts.",
        ),
        OWNER,
    ),
    grain=("cluster", "slice", "is_dead_lettered", "consumer_group", "disposition", "half_hour", "owner"),
)
