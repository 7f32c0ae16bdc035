"""landing/changes -> bronze.changes: a row per distinct line of a file, as it came.

A webhook that is delivered again sends an equal line, which is a duplicate.
"""

from pipelines.sources import json_lines

parse = json_lines.landed
