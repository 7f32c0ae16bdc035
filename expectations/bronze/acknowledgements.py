"""Contract of bronze.acknowledgements: the lines about acknowledgements that producers received, as they came."""

from expectations.contract import ORIGIN, Contract
from expectations.json_lines import landed

CONTRACT = Contract(
    table="bronze.acknowledgements",
    description="One row per line of the feed of acknowledgements; equal lines are different acknowledgements.",
    columns=landed("SHA-256 of the line and its occurrence in a file, or of its place in a topic."),
    grain=ORIGIN,
)
