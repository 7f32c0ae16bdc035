"""Contract of silver.group_deletions: every deletion of a group, successful or refused."""

from expectations.contract import Contract
from expectations.exchanges import CONTENT_HASH, EVIDENCE, GRAIN, group_id, item, logged, origin, outcome
from expectations.kafka_errors import DELETION

# KIP-1331: before version 3, a broker reports a plugin failure as UNKNOWN_SERVER_ERROR, not GROUP_DELETION_FAILED.
DOWNGRADED = "IF(error_code = -1 AND api_version < 3, 134, error_code)"

CONTRACT = Contract(
    table="silver.group_deletions",
    description="One row per group in the response to a DELETE_GROUPS request, streams group or not.",
    columns=(
        *origin("deletion"),
        item("group"),
        logged("deleted_at", "When the broker had answered the request."),
        group_id(),
        *outcome(DELETION, DOWNGRADED),
        CONTENT_HASH,
        *EVIDENCE,
    ),
    grain=(*GRAIN, "group_id", "deleted_at"),
    content="_content_hash",
    item="_item",
    ranges_per=("cluster",),
)
