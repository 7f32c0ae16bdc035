"""Landing directory -> lines: the files in a feed's directory, and their lines with unchanged bytes."""

from __future__ import annotations

import os
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pipelines import scratch
from pipelines.errors import EnvironmentLacking, UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SCHEMA = "_source string, line binary, damage string"
ORDER = ("_block", "_place")

GZIP = ".gz"
# Hadoop and Spark unpack these suffixes too, but not reliably: a broken .lz4 or .snappy file is read as an empty one,
# and a broken .zstd file fails the whole query.
UNREAD_FORMATS = {
    **{".bz2": "bzip2", ".deflate": "deflate", ".lz4": "lz4", ".snappy": "snappy"},
    **{".zst": "zstd", ".zstd": "zstd"},
}

_DAMAGED = "The gzip file is damaged: land it again from its source."
_NO_GZIP = "The file, or its end, is not gzip: land it again under a name that says what it is."
_TRUNCATED = "The gzip file ends too early: land it again from its source."

_BLANK = " \t\r\x0b\x0c\ufeff"
_BLOCK = 1 << 20
_GZIP_BEGINS = 0x1F
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
    in_order: bool = False,
) -> DataFrame:
    """Return ``SCHEMA``: a row per line that is not blank, split only at newlines, with gzip files unpacked.

    ``damaged`` is the result of the function of that name. The lines before the damage are read, and one row per
    damaged file, without a line, says in ``damage`` what is wrong. A file in a format that is not read always gets such
    a row. With ``in_order``, two more columns, ``_block`` and ``_place``, give the order of the lines of a file.
    """
    from pyspark.sql import functions as F

    root = os.path.realpath(directory)
    stand_ins = _StandIns(root)
    paths, damages = [], []
    for file in files:
        source, suffix = file.source, _suffix(file.source)
        if suffix in UNREAD_FORMATS:
            damages.append((source, None, _unread_format(suffix)))
        elif damaged and source in damaged:
            damages.append((source, None, damaged[source]))
            paths.append(stand_ins.unpack(source))
        elif _PLAIN_PATH.fullmatch(f"{root}/{source}"):
            paths.append(f"{root}/{source}")
        else:
            paths.append(stand_ins.link(source))
    if not paths:
        return _damage_rows(spark, damages, in_order)
    text = F.col("value")
    read = (
        spark.read.option("lineSep", "\n")
        .text(paths)
        .where(text.startswith("{") | (F.trim(text, F.lit(_BLANK)) != ""))
        .select(
            stand_ins.source(F.col("_metadata.file_path")).alias("_source"),
            text.cast("binary").alias("line"),
            F.lit(None).cast("string").alias("damage"),
            *([F.col("_metadata.file_block_start").alias("_block")] if in_order else []),
        )
    )
    if in_order:  # a task reads a block from its beginning to its end, so the ids follow the order of the lines
        read = read.withColumn("_place", F.monotonically_increasing_id())
    return read.union(_damage_rows(spark, damages, in_order)) if damages else read


def _damage_rows(spark: SparkSession, damages: list[tuple[str, None, str]], in_order: bool) -> DataFrame:
    from pyspark.sql import functions as F

    rows = spark.createDataFrame(damages, SCHEMA)
    return rows.withColumns({name: F.lit(None).cast("bigint") for name in ORDER}) if in_order else rows


def are_plain(files: Sequence[LandedFile]) -> bool:
    """Tell whether no file is packed, so that their lines are no larger than the files."""
    return not any(_suffix(file.source) == GZIP for file in files)


def damaged(directory: Path, files: Sequence[LandedFile]) -> dict[str, str]:
    """Unpack the gzip files and return, by source, a sentence on each that cannot be unpacked to its end."""
    root = os.path.realpath(directory)
    packed = [file.source for file in files if _suffix(file.source) == GZIP]
    errors = ((source, _unpack(path_of(root, source))) for source in packed)
    return {source: error for source, error in errors if error}


def numbered_id(line: str, damage: str, occurrence: str | None) -> Column:
    """Return the ``_bronze_id`` of a line in a feed whose equal lines are different events; arguments name columns.

    The first of a file's equal lines has the id that it would have alone, so a copy of a file keeps its ids, and so
    does a file that grows. A row about a damaged file has no line: its id comes from the file and the damage. Without
    ``occurrence`` each line counts as the first.
    """
    from pyspark.sql import functions as F

    about_the_file = F.concat_ws("\n", "_source", damage).cast("binary")
    content = F.col(line)
    if occurrence is not None:
        later = F.concat(F.col(line), F.concat(F.lit("\n"), F.col(occurrence).cast("string")).cast("binary"))
        content = F.when(F.col(occurrence) > 1, later).otherwise(F.col(line))
    return F.sha2(F.coalesce(content, about_the_file), 256)


def line_id(lines: DataFrame) -> Column:
    """Return the ``_bronze_id`` of lines: the one that their source gave, else one made from the line.

    If the lines are not numbered, because the stage has no ``lines_are_events``, equal lines have the same id.
    """
    from pyspark.sql import functions as F

    if "_bronze_id" in lines.columns:
        return F.col("_bronze_id")
    return numbered_id("line", "damage", "_occurrence" if "_occurrence" in lines.columns else None)


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


DAMAGES = tuple(dict.fromkeys((_DAMAGED, _NO_GZIP, _TRUNCATED, *map(_unread_format, UNREAD_FORMATS))))
"""All that may be wrong with a file as a whole, in the words of its row."""


def content(root: str, source: str) -> Iterator[bytes]:
    """Yield what a landed file holds, unpacked, block by block; nothing if it is gone or cannot be read as lines."""
    path, suffix = path_of(root, source), _suffix(source)
    if suffix in UNREAD_FORMATS or not os.path.isfile(path):
        return
    with suppress(OSError, zlib.error, _NotGzip, EOFError), open(path, "rb") as landed:
        blocks = iter(lambda: landed.read(_BLOCK), b"")
        yield from _inflate(blocks) if suffix == GZIP else blocks


class _StandIns:
    """Files that Spark reads instead of files whose names it cannot take; the source in hex digits is their name."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.used = False

    @cached_property
    def scratch(self) -> str:
        self.used = True
        return tempfile.mkdtemp(dir=_stand_ins_of_this_process())

    def link(self, source: str) -> str:
        """Return a link to a file that Spark can read as it is."""
        stand_in = self._named(source, GZIP if _suffix(source) == GZIP else ".lines")
        os.symlink(path_of(self.root, source), stand_in)
        return stand_in

    def unpack(self, source: str) -> str:
        """Return a file with the content of a damaged file before its damage."""
        stand_in = self._named(source, ".lines")
        with open(stand_in, "wb") as readable:
            _unpack(path_of(self.root, source), readable)
        return stand_in

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


def _unpack(path: str, target: BinaryIO | None = None) -> str | None:
    """Write the content of a gzip file to the target, up to any damage; return a sentence on the damage, or None."""
    try:
        with open(path, "rb") as packed:
            for block in _inflate(iter(lambda: packed.read(_BLOCK), b"")):
                if target:
                    target.write(block)
    except FileNotFoundError:
        return None
    except zlib.error:
        return _DAMAGED
    except _NotGzip:
        return _NO_GZIP
    except EOFError:
        return _TRUNCATED
    return None


class _NotGzip(Exception):
    """Raised if other bytes stand where a gzip member should begin."""


def _inflate(packed: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content of gzip members, one after the other, with at most a block in memory.

    Raises _NotGzip, zlib.error, EOFError: the bytes are not gzip, are damaged, or end too early.
    """
    member = _member()
    begun = False
    for block in packed:
        while block:
            if member.eof:
                member, begun = _member(), False
            if not begun and block[0] != _GZIP_BEGINS:
                raise _NotGzip
            begun = True
            before = member.copy()
            try:
                yield member.decompress(block, _BLOCK)
            except zlib.error:
                yield from _up_to_damage(before, block)
                raise
            block = member.unused_data or member.unconsumed_tail
    while begun and not member.eof:
        rest = member.decompress(b"", _BLOCK)
        if not rest:
            raise EOFError
        yield rest


def _member() -> zlib._Decompress:
    return zlib.decompressobj(zlib.MAX_WBITS | 16)


def _up_to_damage(member: zlib._Decompress, block: bytes) -> Iterator[bytes]:
    """Yield what a block holds before its damage, byte by byte: a zlib call that fails returns nothing."""
    with suppress(zlib.error):
        for at in range(len(block)):
            yield member.decompress(block[at : at + 1])
