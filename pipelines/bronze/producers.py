"""landing/producers -> bronze.producers: a row per distinct line of a file, as it came.

Equal lines say the same about a producer, so the second is a duplicate.
"""

from pipelines.sources import json_lines

parse = json_lines.landed
