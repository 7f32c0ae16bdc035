"""value -> fields: the JSON envelope of a dead letter whose profile has paths, and the texts at these paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pipelines.columns import globs
from pipelines.columns.profiles import Profile

if TYPE_CHECKING:
    from pyspark.sql import Column

ENVELOPE = "_envelope"
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")  # which JSON writes as it is


def envelope(profiles: Iterable[Profile]) -> Column:
    """Return the value as JSON if it is one that a profile with paths may read.

    To parse each value would cost too much, so it must have the keys of the mandatory paths of a profile in it.
    """
    content = F.col("value")
    begins = F.substring(content, 1, 1).isin(*(bytes([byte]) for byte in b"{[ \t\r\n"))
    asked = []
    for profile in profiles:
        if not profile.paths:
            continue
        keys = sorted({key for path in profile.mandatory_paths for key in _keys(path)})
        holds = [F.contains(content, F.lit(key.encode())) for key in keys if _PLAIN_KEY.fullmatch(key)]
        applies = F.lit(True)
        if profile.topic:
            applies = F.coalesce(F.col("topic").rlike(globs.regex(profile.topic)), F.lit(False))
        asked.append(reduce(and_, holds, applies))
    json = F.try_validate_utf8(content.cast("string"))
    return F.when(begins & reduce(or_, asked), F.try_parse_json(json))


def at_path(path: str) -> Column:
    """Return the text at a path of the column ``ENVELOPE``; ``.*`` is an object's only key."""
    inner: Column | str = ENVELOPE
    *objects, path = path.split(".*")
    for index, above in enumerate(objects):
        keys = F.try_variant_get(inner, above if not index else f"${above}", "map<string, variant>")
        inner = F.get(F.when(F.size(keys) == 1, F.map_values(keys)), F.lit(0))
    return F.try_variant_get(inner, f"${path}" if objects else path, "string")


def _keys(path: str) -> list[str]:
    """Return the keys of a path such as ``$.error['a key'][0]``."""
    groups = re.findall(r"""\.([^.\[]+)|\['([^']*)'\]|\["([^"]*)"\]""", path)
    return [key for keys in groups for key in keys if key]
