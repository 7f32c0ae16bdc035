"""Contract of silver.group_deletions: every deletion of a group, done or refused."""

from expectations.contract import Contract
from expectations.exchanges import CONTENT_HASH, EVIDENCE, GRAIN, group_id, item, logged, origin, outcome
from expectations.kafka_errors import DELETION

CONTRACT = Contract(
    table="silver.group_deletions",
    description="One row per group in the response to a DELETE_GROUPS request, streams group or not.",
    columns=(
        *origin("deletion"),
        item("group"),
        logged("deleted_at", "When the broker had answered the request."),
        group_id(),
        *outcome(DELETION),
        CONTENT_HASH,
        *EVIDENCE,
    ),
    grain=(*GRAIN, "group_id", "deleted_at"),
    content="_content_hash",
    item="_item",
    ranges_per=("cluster",),
)
