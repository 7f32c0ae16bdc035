"""An episode and its figures -> the words in which people read them."""

from __future__ import annotations

from collections.abc import Mapping
from math import floor

from expectations.rules import counted
from pipelines.incidents.evidence import (
    FEW_KEYS,
    LEAST_KEYS,
    MOST_KEYS,
    NO_MARKERS,
    OFFSETS,
    Evidence,
    Row,
    located_count,
)

ERROR_OF_KEYS = 0.25  # two standard errors of an estimate from `LEAST_KEYS` hashes


def in_words(verdict: str) -> str:
    """Return a verdict as people write it."""
    return verdict.replace("_", " ").lower()


def percent(share: float) -> str:
    """Return a share in words, such as `93 %`; never 100 % or 0 % if it is not exactly that."""
    if 0 < share < 0.005:
        return "less than 1 %"
    if 0.995 <= share < 1:
        return "more than 99 %"
    return f"{share:.0%}".replace("%", " %")


def at_least(share: float) -> str:
    """Return in words a share of which more may be true."""
    return percent(share) if share == 1 else f"at least {floor(100 * share)} %"


def among(episode: Row, evidence: Evidence | Row) -> str:
    """Say how many of the records around a few source records are these."""
    figures = evidence if isinstance(evidence, Mapping) else vars(evidence)
    died = located_count(episode)
    whole = f"{figures['window_record_count']:,} {figures['offset_share_of']}"
    return f"{died:,} of the {whole} around {'it' if died == 1 else 'them'} died of it"


def sources_of(episode: Row) -> str:
    """Say how many source records an episode has; records that name none can be of one or of several."""
    located = located_count(episode)
    if not located:
        return f"at most {counted(episode['source_record_count'], 'unnamed source record')}"
    unknown = episode["source_record_count"] - located
    return counted(located, "source record") + (f" and at most {counted(unknown, 'unknown one')}" if unknown else "")


def are_all_counted(episode: Row) -> bool:
    """Tell whether all dead letters of the top records are counted: of many, each slice and half hour counts some."""
    one_each = bool(episode["record_count"] == episode["source_record_count"])
    return one_each or located_count(episode) <= len(episode["top_records"] or ())


def keys_of(episode: Row) -> str:
    """Say how many keys an episode has; if there are many, between which numbers the estimate lies."""
    keys = episode["key_count"] or 0
    if episode["is_key_count_exact"]:
        return counted(keys, "key")
    most = episode["keyed_count"] or keys
    least = min(_rounded(max(LEAST_KEYS, (1 - ERROR_OF_KEYS) * keys)), most)
    most = min(_rounded((1 + ERROR_OF_KEYS) * keys), most)
    return f"{least:,} to {most:,} keys" if least < most else counted(most, "key")


def _rounded(number: float) -> int:
    """Return a number with two digits that are not 0."""
    return int(round(number, min(0, 2 - len(str(round(number))))))


def few_keys(episode: Row) -> str:
    """Say how many keys the share of the most frequent ones is of."""
    keys = min(episode["key_count"] or 0, FEW_KEYS)
    return "one key" if keys == 1 else f"{keys} keys"


def key_percent(episode: Row, share: float) -> str | None:
    """Return the share of the most frequent keys in words; None if all that is known is that some records have them."""
    if (episode["key_count"] or 0) <= MOST_KEYS:
        return percent(share)
    return at_least(share) if share >= 0.01 else None


def at_offset(topic: str | None, partition: int | None, offset: int | None) -> str:
    """Return the coordinate of a source record as commands write it; ``?`` for a topic that is not known."""
    return f"{topic or '?'}:{partition}:{offset}"


def died_around(episode: Row, evidence: Evidence | Row) -> str | None:
    """Say how many, or which share, of the records around those of an incident died of it; None: nothing tells."""
    figures = evidence if isinstance(evidence, Mapping) else vars(evidence)
    if figures["window_record_count"] is not None and figures["window_offset_count"] is None:
        return among(episode, evidence)
    share = figures["offset_share"]  # rows of earlier versions have 0 where nothing is known
    return f"{percent(share)} of the {figures['offset_share_of'] or OFFSETS} around them died" if share else None


def of_all(row: Row) -> str | None:
    """Say which share of all between an incident's first and last source records died, if another one is told.

    Neighbours within a half hour can tell a greater share (`_share_of_records`). None: nothing else is known.
    """
    known, share = row["window_record_count"] or row["window_offset_count"], row["offset_share"]
    if not known or not share or row["window_offset_count"] is None or row["offset_share_of"] == NO_MARKERS:
        return None
    of_partitions = (partition["source_record_count"] for partition in row["partitions"] or ())
    whole = percent(min(1.0, sum(count for count in of_partitions if count > 1) / known))
    return f"{whole} of all {known:,} from the first to the last" if whole != percent(share) else None


def shared(kind: str | None, name: str | None) -> str:
    """Say what records with one attribute share; it names no value, but for the client that produced them."""
    return {
        "client": f"were produced by client {name}",
        "schema_id": f"share one schema id of the {name}",
        "key_prefix": "share one prefix of the key",
    }.get(kind or "", f"share one value of header {name}")


def shared_by(evidence: Evidence) -> str:
    """Say what others have of the attribute that the records share, and how many of these."""
    assert evidence.attribute_share_elsewhere is not None
    return f"{percent(evidence.attribute_share_elsewhere)} of {evidence.attribute_compared_with}"
