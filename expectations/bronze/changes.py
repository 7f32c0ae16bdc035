"""Contract of bronze.changes: the lines about deployments and other changes, as they came."""

from expectations.contract import ORIGIN, Contract
from expectations.json_lines import landed

CONTRACT = Contract(
    table="bronze.changes",
    description="One row per distinct line of a file of the feed of changes.",
    columns=landed("SHA-256 of the line."),
    grain=ORIGIN,
)
