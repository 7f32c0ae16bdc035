"""Contract of bronze.cluster_settings: the lines about a cluster's settings, as they came."""

from expectations.contract import ORIGIN, Contract
from expectations.json_lines import landed

CONTRACT = Contract(
    table="bronze.cluster_settings",
    description="One row per distinct line of a file about the settings of a cluster's topics, groups and brokers.",
    columns=landed("SHA-256 of the line."),
    grain=ORIGIN,
)
