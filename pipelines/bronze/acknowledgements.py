"""landing/acknowledgements, a topic -> bronze.acknowledgements: a row per line; equal lines are different events."""

from pipelines.sources import json_lines

parse = json_lines.landed
