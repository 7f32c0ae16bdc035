"""landing/cluster-settings -> bronze.cluster_settings: a row per distinct line of a file, as it came.

A line names the moment of which it speaks, so equal lines say the same.
"""

from pipelines.sources import json_lines

parse = json_lines.landed
