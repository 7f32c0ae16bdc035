"""landing/changes -> bronze.changes: a row per distinct line of a file, as it came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.settings import Settings
from pipelines.sources import json_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def parse(lines: DataFrame, settings: Settings) -> DataFrame:
    """Return the contract's columns, without those that the run adds, for the lines of landed files.

    A webhook that is delivered again sends an equal line, which is a duplicate.
    """
    return json_lines.landed(lines, settings)
