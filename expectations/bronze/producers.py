"""Contract of bronze.producers: the lines about producers' settings, as they came."""

from expectations.contract import ORIGIN, Contract
from expectations.json_lines import landed

CONTRACT = Contract(
    table="bronze.producers",
    description="One row per distinct line of a file of the feed of producers.",
    columns=landed("SHA-256 of the line."),
    grain=ORIGIN,
)
