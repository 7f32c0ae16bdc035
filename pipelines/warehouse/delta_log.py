"""The files of a Delta log: who coordinates its commits, what damage stops readers, and how to recover.

This module inspects the files themselves, because a Delta reader fails on a damaged log.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines import moments
from pipelines.errors import UsageError
from pipelines.stores.base import Store

LAST_CHECKPOINT = "_last_checkpoint"
_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json)"
)
# Directories of commits that are not in the log yet; a commit coordinator or a catalog decides which of them count.
_STAGED = ("_staged_commits", "_commits")
_PROPERTY = "delta.coordinatedCommits.commitCoordinator"
_FEATURES = re.compile(r"coordinatedCommits\b.*|catalogOwned\b.*|catalogManaged\b.*")
_SAID = re.compile(r"coordinated commits|commit coordinator|catalog-managed|catalog-owned", re.IGNORECASE)
_MAGIC = b"PAR1"


@dataclass(frozen=True)
class _Log:
    """The log of a table in a store."""

    store: Store
    table: str

    @property
    def path(self) -> str:
        return f"{self.table}/_delta_log"

    def named(self, name: str) -> str:
        """Return a file as messages name it."""
        return f"{self.store.shown}/{self.path}/{name}".rstrip("/")

    def read(self, name: str) -> bytes:
        """Return a file's bytes; none if it is not there."""
        return self.store.read(f"{self.path}/{name}") or b""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a table's log, and what a person can do about it.

    ``away`` names the files of the log without which it can be read; there are none if it lacks commits.
    """

    finding: str
    remedy: str
    away: tuple[str, ...] = ()


def actions_of(text: str) -> list[dict[str, Any]]:
    """Return the actions of a commit's file, one a line.

    Only newlines end lines: statistics of texts can hold other line breaks, such as U+2028, as they are.

    Raises ValueError: a line is no JSON.
    """
    return [json.loads(line) for line in text.removesuffix("\n").split("\n")] if text else []


def write(
    store: Store,
    log: str,
    version: int,
    operation: str,
    actions: Iterable[Mapping[str, Any]],
    said: str | None,
    durable: bool = True,
) -> bool:
    """Write a commit if there is none of its version; tell whether what is there is this one. Raises as the store."""
    info = {"timestamp": moments.millis(), "operation": operation, "operationParameters": {}}
    commit_info = {"commitInfo": {**info, **({"userMetadata": said} if said else {})}}
    content = "".join(f"{json.dumps(action)}\n" for action in (commit_info, *actions))
    return store.create(f"{log}/{version:020}.json", content.encode(), durable)


def coordinator(properties: Mapping[str, str | None], features: Iterable[str]) -> str | None:
    """Return the property or feature that lets a coordinator or catalog decide which commits count; None if none."""
    named = [name for name, value in properties.items() if name.startswith(_PROPERTY) and "Conf" not in name and value]
    return next(iter([*named, *(feature for feature in features if _FEATURES.fullmatch(feature))]), None)


def is_about_coordination(error: Exception) -> bool:
    """Tell, from an error's first two lines, whether a reader refused a table because its commits are coordinated."""
    return bool(_SAID.search(" ".join(str(error).splitlines()[:2])))


def coordinated(table: str, by: str) -> UsageError:
    """Return the error for a table whose commits Afterlog cannot follow."""
    return UsageError(
        f"The commits of {table} are not decided by its Delta log alone ({by}), which Afterlog does not support: "
        f"drop that feature from the table, or name another warehouse."
    )


def staged(store: Store, log: str, names: Iterable[str]) -> str | None:
    """Return the subdirectory of a log that holds commits that are not in the log yet; None if there is none."""
    found = (name for name in names if name in _STAGED)
    return next((name for name in found if any(file.endswith(".json") for file in store.names(f"{log}/{name}"))), None)


def fault(store: Store, table: str, refused: bool = False) -> Fault | None:
    """Return what is wrong with the checkpoint that readers of a table start from; None if nothing is wrong.

    ``table`` is its path in the store. If a reader ``refused`` the table, its last checkpoint counts as damaged even if
    the files look intact.
    """
    log = _Log(store, table)
    names = store.names(log.path)
    checkpoints = _checkpoints(names)
    last = max(checkpoints, default=-1)
    damage = _damage(log, checkpoints[last]) if checkpoints else None
    if not damage and LAST_CHECKPOINT in names:
        pointed_at = _pointed_at(log)
        finding = None
        if pointed_at is None:
            finding = f"{log.named(LAST_CHECKPOINT)} is no JSON that names a checkpoint."
        elif pointed_at > last:
            finding = f"{log.named(LAST_CHECKPOINT)} names the checkpoint of version {pointed_at}, which is not there."
        if finding:
            return Fault(finding, *_way_on(log, names, [LAST_CHECKPOINT], last, last))
    if checkpoints and refused:
        damage = damage or "cannot be read"
    if not damage:
        return None
    sound = max((v for v in checkpoints if v != last and not _damage(log, checkpoints[v])), default=-1)
    later = [name for version, files in checkpoints.items() if version > sound for name in files]
    away = [*later, *([LAST_CHECKPOINT] if LAST_CHECKPOINT in names else [])]
    return Fault(f"The checkpoint of version {last} {damage}.", *_way_on(log, names, away, sound, last))


def _way_on(log: _Log, names: list[str], away: list[str], sound: int, last: int) -> tuple[str, tuple[str, ...]]:
    """Say how to recover: move files away if all commits after the sound checkpoint (-1: none) exist, else restore.

    Return the files to move, too.
    """
    commits = {int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.json", name)}
    end = max(last, *commits, sound)
    missing = [version for version in range(sound + 1, end + 1) if version not in commits]
    if missing:
        return (
            f"The log cannot do without it, as {len(missing)} of the JSON commits {sound + 1} to {end} are gone, the "
            f"first of them {missing[0]}: restore it from a backup, or move {log.store.shown}/{log.table} away: "
            f"`afterlog run` then fills it again from its input.",
            (),
        )
    base = f"the checkpoint of version {sound}" if sound >= 0 else ""
    kept = f"the JSON commits {sound + 1} to {end}, which are all there and must stay" if end > sound else ""
    return (
        f"Move {' and '.join(away)} out of {log.named('')}: readers then fall back to "
        f"{' and '.join(filter(None, (base, kept)))}. `afterlog repair` does it.",
        tuple(away),
    )


def _checkpoints(names: Iterable[str]) -> dict[int, list[str]]:
    """Return the file names of each checkpoint, by version."""
    checkpoints: dict[int, list[str]] = {}
    for name in names:
        if match := _CHECKPOINT.fullmatch(name):
            checkpoints.setdefault(int(match[1]), []).append(name)
    return checkpoints


def _pointed_at(log: _Log) -> int | None:
    try:
        version = json.loads(log.read(LAST_CHECKPOINT))["version"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return version if isinstance(version, int) else None


def _damage(log: _Log, names: list[str]) -> str | None:
    """Say what is wrong with the files of a checkpoint, or None; a multi-part checkpoint needs all its parts."""
    parts = [match for name in names if (match := _CHECKPOINT.fullmatch(name)) and match["parts"]]
    if parts and len(parts) == len(names) and len(parts) < int(parts[0]["parts"]):
        return f"lacks {int(parts[0]['parts']) - len(parts)} of its {int(parts[0]['parts'])} parts"
    for name in names:
        if damage := _damage_of_file(log, name):
            return damage
    return None


def _damage_of_file(log: _Log, name: str) -> str | None:
    content, file = log.read(name), log.named(name)
    if not content:
        return f"is empty ({file})"
    if name.endswith(".json"):
        try:
            actions_of(content.decode("utf-8"))
        except ValueError:
            return f"is no JSON ({file})"
    elif content[:4] != _MAGIC or content[-4:] != _MAGIC or _footer_length(content) > len(content) - 12:
        return f"is no whole Parquet file ({file})"
    return None if _agrees_with_its_checksum(log, name, content) else f"does not agree with its checksum ({file})"


def _footer_length(content: bytes) -> int:
    return int(struct.unpack("<I", content[-8:-4])[0]) if len(content) >= 12 else len(content)


def _agrees_with_its_checksum(log: _Log, name: str, content: bytes) -> bool:
    """Tell whether a file matches the checksum file that Hadoop writes beside it; True if none can be used."""
    checksums = log.read(f".{name}.crc")
    if checksums[:4] != b"crc\0" or len(checksums) < 8:
        return True
    size = struct.unpack(">I", checksums[4:8])[0] or len(content)
    stated = struct.unpack(f">{len(checksums[8:]) // 4}I", checksums[8 : 8 + len(checksums[8:]) // 4 * 4])
    return stated == tuple(zlib.crc32(content[start : start + size]) for start in range(0, len(content), size))
