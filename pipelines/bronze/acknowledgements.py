"""landing/acknowledgements, a topic -> bronze.acknowledgements: a row per line; equal lines are different events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.settings import Settings
from pipelines.sources import json_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def parse(lines: DataFrame, settings: Settings) -> DataFrame:
    """Return the contract's columns, without those that the run adds, for numbered lines of files or of a topic."""
    return json_lines.landed(lines, settings)
