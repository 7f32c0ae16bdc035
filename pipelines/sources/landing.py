"""Landing directory -> lines: the files in a feed's directory, and their lines with unchanged bytes."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines import scratch
from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.sources import unpacking
from pipelines.sources.unpacking import Damage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SCHEMA = "_source string, line binary, damage string"

GZIP = ".gz"
# Hadoop and Spark unpack these suffixes too, but not reliably: a broken .lz4 or .snappy file is read as an empty one.
UNREAD_FORMATS = {".bz2": "bzip2", ".deflate": "deflate", ".lz4": "lz4", ".snappy": "snappy"}

_BLANK = " \t\r\x0b\x0c\ufeff"
_BLOCK = 1 << 20
_LINK_PART = 200
# Paths that Hadoop and java.net.URI leave unchanged in every locale.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./=,@&;~+-]*")
_ESCAPED_BYTE = re.compile(rb"\\x([89a-f][0-9a-f])")


@dataclass(frozen=True)
class LandedFile:
    """A file below a feed's landing directory; with another size or modification time it counts as another file."""

    source: str
    size: int
    modified_ns: int


def listing(directory: Path, also: re.Pattern[str] | None = None) -> dict[str, LandedFile]:
    r"""Return the files that have landed, by source: the path below the directory, separated by ``/``.

    Files and directories whose names begin with ``.`` or ``_``, or end in ``.tmp``, are left out: they are not meant
    for the feed, or not yet. ``also`` matches names that are listed all the same. Links are followed, except those that
    lead back up. Bytes of a name that are not UTF-8 appear as ``\xe9``.

    Raises UsageError: something cannot be read, or two names appear alike.
    """
    files: dict[str, LandedFile] = {}
    for name, facts in _walk(os.fspath(directory), also):
        source = _source_of(name)
        if source in files:
            raise UsageError(f"Two files in {_shown(directory)} have names that are shown as {source!r}: rename one.")
        files[source] = LandedFile(source, facts.st_size, facts.st_mtime_ns)
    return files


def lines(
    spark: SparkSession,
    directory: Path,
    files: Sequence[LandedFile],
    damaged: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return ``SCHEMA``: a row per line that is not blank, split only at newlines, with files unpacked.

    What is not lines, such as an array, is unpacked to a line per record (``unpacking``). ``damaged`` is the result of
    the function of that name. The lines before the damage are read, and one row per damaged file, without a line, says
    in ``damage`` what is wrong. A file in a format that is not read always gets such a row.
    """
    from pyspark.sql import functions as F

    from pipelines.jvm import properties  # workers of a cluster import this module, and have no settings

    root = os.path.realpath(directory)
    on_cluster = properties.is_cluster({"spark.master": str(spark.sparkContext.master)})
    stand_ins = _StandIns(root, on_cluster)
    paths: list[str] = []
    damages: list[tuple[str, None, str]] = []
    for file in files:
        source, suffix = file.source, _suffix(file.source)
        if suffix in UNREAD_FORMATS:
            damages.append((source, None, _unread_format(suffix)))
        elif (unpacked := unpacking.unpacked(path_of(root, source))) is not None:
            stand_in, damage = stand_ins.fill(source, unpacked)
            paths.append(stand_in)
            damages += [(source, None, damage)] if damage else []
        elif damaged and source in damaged:
            damages.append((source, None, damaged[source]))
            paths.append(stand_ins.fill(source, _inflated(path_of(root, source)))[0])
        elif _PLAIN_PATH.fullmatch(f"{root}/{source}"):
            paths.append(f"{root}/{source}")
        else:
            paths.append(stand_ins.link(source))
    if not paths:
        return spark.createDataFrame(damages, SCHEMA)
    text = F.col("value")
    read = (
        spark.read.option("lineSep", "\n")
        .text([f"file:{path}" for path in paths])  # a cluster's own file system may be another one
        .where(text.startswith("{") | (F.trim(text, F.lit(_BLANK)) != ""))
        .select(
            stand_ins.source(F.col("_metadata.file_path")).alias("_source"),
            text.cast("binary").alias("line"),
            F.lit(None).cast("string").alias("damage"),
        )
    )
    return read.union(spark.createDataFrame(damages, SCHEMA)) if damages else read


def are_plain(directory: Path, files: Sequence[LandedFile]) -> bool:
    """Tell whether no file is packed, so that their lines are no larger than the files."""
    root = os.path.realpath(directory)
    return not any(
        _suffix(file.source) == GZIP or unpacking.unpacked(path_of(root, file.source)) is not None for file in files
    )


def is_unread(source: str) -> bool:
    """Tell whether a file is in a format that is not read, however sound it is."""
    return _suffix(source) in UNREAD_FORMATS


def damaged(directory: Path, files: Sequence[LandedFile]) -> dict[str, str]:
    """Unpack the packed files and return, by source, a sentence on each that cannot be unpacked to its end."""
    root = os.path.realpath(directory)
    sentences: dict[str, str] = {}
    for file in files:
        blocks = unpacking.unpacked(path_of(root, file.source))
        if blocks is None and _suffix(file.source) == GZIP:
            blocks = _inflated(path_of(root, file.source))
        try:
            for _ in blocks or ():
                pass
        except Damage as damage:
            sentences[file.source] = str(damage)
    return sentences


def numbered_id(occurrence: str | None) -> Column:
    """Return the ``_bronze_id`` of a line in a feed whose equal lines are different events.

    The first of a file's equal lines has the id that it would have alone, so a copy of a file keeps its ids, and so
    does a file that grows. A row about a damaged file has no line: its id comes from the file and the damage.
    ``occurrence`` names a column; without one each line counts as the first.
    """
    from pyspark.sql import functions as F

    about_the_file = F.concat_ws("\n", "_source", "damage").cast("binary")
    content = F.col("line")
    if occurrence is not None:
        later = F.concat(F.col("line"), F.concat(F.lit("\n"), F.col(occurrence).cast("string")).cast("binary"))
        content = F.when(F.col(occurrence) > 1, later).otherwise(F.col("line"))
    return F.sha2(F.coalesce(content, about_the_file), 256)


def line_id(lines: DataFrame) -> Column:
    """Return the ``_bronze_id`` of lines: the one that their source gave, else one made from the line.

    If the lines are not numbered, because the stage has no ``lines_are_events``, equal lines have the same id.
    """
    from pyspark.sql import functions as F

    if "_bronze_id" in lines.columns:
        return F.col("_bronze_id")
    return numbered_id("_occurrence" if "_occurrence" in lines.columns else None)


def _walk(top: str, also: re.Pattern[str] | None) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files below a directory, each with its path relative to it, as Python decodes the name."""
    pending = [("", top, frozenset[tuple[int, int]]())]
    while pending:
        below, path, above = pending.pop()
        try:
            facts = os.stat(path)
            entries = list(os.scandir(path))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _unreadable(path, error) from None
        this = (facts.st_dev, facts.st_ino)
        if this in above:
            continue
        for entry in entries:
            is_left_out = entry.name.startswith((".", "_")) or entry.name.endswith(".tmp")
            if is_left_out and not (also and also.fullmatch(entry.name)):
                continue
            try:
                if entry.is_dir():
                    pending.append((f"{below}{entry.name}/", entry.path, above | {this}))
                elif entry.is_file():
                    if not os.access(entry.path, os.R_OK):
                        raise PermissionError(13, "Permission denied")
                    yield below + entry.name, entry.stat()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _unreadable(entry.path, error) from None


def _unreadable(path: str, error: OSError) -> UsageError:
    return UsageError(f"{_shown(path)} cannot be read ({error.strerror}): fix it or move it out of the landing.")


def _shown(path: str | Path) -> str:
    """Return a path in quotes, for a message, as a name can contain characters that are unsafe for a terminal."""
    return repr(_source_of(os.fspath(path)))


def _source_of(name: str) -> str:
    """Return a file's path as text that can be stored."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")


def path_of(root: str, source: str) -> str:
    r"""Return the path of a source; unescape its name if no file has it literally."""
    path = f"{root}/{source}"
    if "\\x" not in source or os.path.lexists(path):
        return path
    raw = _ESCAPED_BYTE.sub(lambda byte: bytes.fromhex(byte[1].decode()), source.encode("utf-8"))
    return f"{root}/{os.fsdecode(raw)}"


def _suffix(source: str) -> str:
    return os.path.splitext(source)[1].lower()


def _unread_format(suffix: str) -> str:
    return f"The file is compressed with {UNREAD_FORMATS[suffix]}, which is not read here: land it as gzip or plain."


DAMAGES = (
    *(unpacking.GZIP_DAMAGED, unpacking.NO_GZIP, unpacking.GZIP_TRUNCATED, unpacking.ZSTD_DAMAGED, unpacking.NO_ZSTD),
    *(unpacking.BINARY_DAMAGED, unpacking.BINARY_PACKED, unpacking.UTF_16_TRUNCATED),
    *map(_unread_format, UNREAD_FORMATS),
)
"""All that may be wrong with a file as a whole, in the words of its row."""


def content(root: str, source: str) -> Iterator[bytes]:
    """Yield the lines of a landed file, block by block; nothing if it is gone or cannot be read as lines."""
    if os.path.isfile(path_of(root, source)):
        with suppress(OSError, Damage):
            yield from whole(root, source)


def whole(root: str, source: str) -> Iterator[bytes]:
    """Yield the lines of a landed file, block by block; nothing if it is in a format that is not read.

    Raises OSError, Damage: the file is gone or damaged.
    """
    if is_unread(source):
        return
    path = path_of(root, source)
    if (unpacked := unpacking.unpacked(path)) is not None:
        yield from unpacked
        return
    with open(path, "rb") as landed:
        blocks = iter(lambda: landed.read(_BLOCK), b"")
        yield from unpacking.inflated(blocks) if _suffix(source) == GZIP else blocks


def unread_format(source: str) -> str | None:
    """Return why a file is in a format that is not read, as a sentence; None if its format is read."""
    return _unread_format(_suffix(source)) if is_unread(source) else None


def _inflated(path: str) -> Iterator[bytes]:
    """Yield the content of a gzip file, nothing if it is gone."""
    with suppress(FileNotFoundError), open(path, "rb") as packed:
        yield from unpacking.inflated(iter(lambda: packed.read(_BLOCK), b""))


class _StandIns:
    """Files that Spark reads instead of files whose names it cannot take; the source in hex digits is their name."""

    def __init__(self, root: str, on_cluster: bool) -> None:
        self.root = root
        self.on_cluster = on_cluster
        self.used = False

    @cached_property
    def scratch(self) -> str:
        self.used = True
        if self.on_cluster:
            if not _PLAIN_PATH.fullmatch(self.root):
                raise EnvironmentLacking(f"A cluster cannot read below {_shown(self.root)}: rename it in plain ASCII.")
            own = f"{scratch.below(self.root)}/{secrets.token_hex(8)}"
            os.mkdir(own)
            return own
        return tempfile.mkdtemp(dir=_stand_ins_of_this_process())

    def link(self, source: str) -> str:
        """Return a link to a file that Spark can read as it is."""
        stand_in = self._named(source, GZIP if _suffix(source) == GZIP else ".lines")
        os.symlink(path_of(self.root, source), stand_in)
        return stand_in

    def fill(self, source: str, blocks: Iterator[bytes]) -> tuple[str, str | None]:
        """Return a file with these blocks, up to any damage, and a sentence on the damage, or None."""
        stand_in = self._named(source, ".lines")
        with open(stand_in, "wb") as readable:
            try:
                readable.writelines(blocks)
            except Damage as damage:
                return stand_in, str(damage)
        return stand_in, None

    def source(self, path: Column) -> Column:
        """Return the source of a row, given the path that Spark read."""
        from pyspark.sql import functions as F

        plain = F.substring(path, len(f"file:{self.root}/") + 1, 1 << 30)
        if not self.used:
            return plain
        prefix = f"file:{self.scratch}/"
        digits = F.replace(F.split_part(F.substring(path, len(prefix) + 1, 1 << 30), F.lit("."), F.lit(1)), F.lit("/"))
        return F.when(path.startswith(prefix), F.unhex(digits).cast("string")).otherwise(plain)

    def _named(self, source: str, suffix: str) -> str:
        digits = source.encode("utf-8").hex()
        parts = [digits[at : at + _LINK_PART] for at in range(0, len(digits), _LINK_PART)]
        stand_in = f"{self.scratch}/{'/'.join(parts)}{suffix}"
        os.makedirs(os.path.dirname(stand_in), exist_ok=True)
        return stand_in


def _stand_ins_of_this_process() -> str:
    own = scratch.directory("landing")
    if not _PLAIN_PATH.fullmatch(own):
        raise EnvironmentLacking(f"Spark cannot read below {_shown(own)}: set TMPDIR to a directory in plain ASCII.")
    return own
