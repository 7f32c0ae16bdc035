"""Rows of text -> lines of a table: whole without a terminal, fitted to the width of a terminal.

Without a terminal, each row is one line, and nothing of it is cut. On a terminal, rows take the first of these forms
that fits: as they are, without the zeros that end all times of a column; headers, and cells of several words, folded
between words; names folded after dots, dashes and the like; each row as a block, one line per column. Numbers and
times are never folded. Only two things are cut: text of more than 400 characters, and long runs of characters without
a sign, such as hashes and payloads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from pipelines.text import cut

Paint = Callable[[int, str, str], str]
"""Colours a piece of a cell, given its column and the whole cell; what it adds must take no room."""

SAMPLED_ROWS = 500  # first rows, which decide the widths of a table
MOST_OF_A_CELL = 400  # of a cell on a terminal
LONGEST_NAME = 40  # columns of the longest run of characters without a sign that is never cut
LEAST_OF_A_RUN = 12  # columns that a longer run keeps at least
GAP = 2

_WORDS = re.compile(r"\S+|\s+")
_PARTS = re.compile(r"[^-._:/,;|=]*[-._:/,;|=]*")
_UNDERSCORED = re.compile(r"[^_\s]*[_\s]*")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")
_ZEROS = (":00.000000Z", ".000000Z", ":00Z")
_WHOLE = re.compile(r"[-+]?[0-9][0-9.,:+TZ-]*")  # numbers and times


def terminal_width(out: TextIO) -> int | None:
    """Return how many columns a terminal has; None if the output goes elsewhere."""
    try:
        return (os.get_terminal_size(out.fileno()).columns or 80) if out.isatty() else None
    except (OSError, ValueError):  # the stream has no file, or is closed
        return None


def lines(
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int | None,
    to_the_right: Sequence[bool] = (),
    paint: Paint = lambda column, cell, piece: piece,
) -> Iterator[tuple[str, int]]:
    """Yield the lines of a table, each with how many rows begin in it; ``width`` is None without a terminal."""
    right = list(to_the_right) or [False] * len(names)
    arriving = iter(rows)
    sample = list(islice(arriving, SAMPLED_ROWS))
    columns = list(zip(names, *sample, strict=True))
    if width is None:
        widths = [max(map(cell_len, column)) for column in columns]
        yield _line(names, names, widths, right, paint=lambda column, cell, piece: piece), 0
        yield _rule(widths), 0
        for row in chain(sample, arriving):
            yield _line(row, row, widths, right, paint), 1
        return
    ends = [_needless(cells) for _, *cells in columns]

    def trimmed(row: Sequence[str]) -> list[str]:
        return [
            cut(f"{cell[: -len(end)]}Z" if end and cell.endswith(end) else cell, MOST_OF_A_CELL)
            for cell, end in zip(row, ends, strict=True)
        ]

    fit = fitted([names, *map(trimmed, sample)], width)
    if fit is None:
        yield from _blocks(names, map(trimmed, chain(sample, arriving)), width, paint)
        return
    found, gap = fit
    header = [fold(name, room, _UNDERSCORED) for name, room in zip(names, found, strict=True)]
    for line in _beside(header):
        yield _line(names, line, found, right, paint=lambda column, cell, piece: piece, gap=gap), 0
    yield _rule(found, gap), 0
    for row in map(trimmed, chain(sample, arriving)):
        folded = [fold(cell, room) for cell, room in zip(row, found, strict=True)]
        for number, line in enumerate(_beside(folded)):
            yield _line(row, line, found, right, paint, gap), int(number == 0)


def _needless(cells: Sequence[str]) -> str:
    """Return the zeros that end all times of a column, of their seconds or only of the fractions; empty if none do."""
    times = [cell for cell in cells if cell != "NULL"]
    return next(
        (end for end in _ZEROS if times and all(_TIME.fullmatch(moment) and moment.endswith(end) for moment in times)),
        "",
    )


def fitted(rows: Sequence[Sequence[str]], width: int) -> tuple[list[int], int] | None:
    """Return the widths of columns, and the gap, that fit a terminal; None if none do. The header is the first row."""
    columns = list(zip(*rows, strict=True))
    whole = [max(map(cell_len, column)) for column in columns]
    for parts, gap in ((_WORDS, GAP), (_WORDS, 1), (_PARTS, GAP), (_PARTS, 1)):
        room = width - gap * (len(columns) - 1)
        least = [
            max(_longest(name, _UNDERSCORED), *(_longest(cell, parts) for cell in cells), 1)
            if cells
            else _longest(name, _UNDERSCORED)
            for name, *cells in columns
        ]
        if sum(least) <= room:
            widths = list(whole)
            while sum(widths) > room:
                spare = [width_of - needed for width_of, needed in zip(widths, least, strict=True)]
                widest = max((at for at, surplus in enumerate(spare) if surplus > 0), key=lambda at: widths[at])
                widths[widest] -= 1
            return widths, gap
    return None


def fold(text: str, room: int, parts: re.Pattern[str] = _WORDS) -> list[str]:
    """Return a text as lines of at most ``room`` columns: folded between words, else after signs, else anywhere."""
    if cell_len(text) <= room:
        return [text]
    folded, line = [], ""
    for piece in _pieces(text, parts):
        while cell_len(line) + cell_len(piece.rstrip()) > room:
            if line.strip():
                folded.append(line.rstrip())
                line = ""
                piece = piece.lstrip()
                continue
            finer = _pieces(piece, _PARTS)
            if cell_len(finer[0]) <= room:
                taken = ""
                for part in finer:
                    if cell_len(taken) + cell_len(part) > room:
                        break
                    taken += part
                folded.append(taken.rstrip())
            elif cell_len(finer[0]) > max(LONGEST_NAME, room) and room > 1:
                taken = finer[0]
                folded.append(f"{_begin(taken, room - 1)}…")
            else:
                taken = _begin(piece, room)
                folded.append(taken)
            piece = piece[len(taken) :]
        line += piece
    if line.strip():
        folded.append(line.rstrip())
    return folded


def _begin(text: str, room: int) -> str:
    """Return as much of a text as fits into ``room`` columns, at least one character."""
    end = 1
    while end < len(text) and cell_len(text[: end + 1]) <= room:
        end += 1
    return text[:end]


def _pieces(text: str, parts: re.Pattern[str]) -> list[str]:
    if parts is not _WORDS and _WHOLE.fullmatch(text):
        return [text]
    if parts is _PARTS:
        return [piece for word in _WORDS.findall(text) for piece in _parts_of(word)]
    return [piece for piece in parts.findall(text) if piece]


def _parts_of(word: str) -> list[str]:
    return [word] if _WHOLE.fullmatch(word) else [piece for piece in _PARTS.findall(word) if piece]


def _longest(text: str, parts: re.Pattern[str]) -> int:
    lengths = (cell_len(piece.rstrip()) for piece in _pieces(text, parts))
    if parts is _UNDERSCORED:
        return max(lengths, default=0)
    pieces = _pieces(text, parts)
    runs = (cell_len(run) for piece in pieces for run in _pieces(piece, _PARTS))
    if all(run <= LONGEST_NAME for run in runs):
        return max(lengths, default=0)
    return max(LEAST_OF_A_RUN, *(size for piece in pieces if (size := cell_len(piece.rstrip())) <= LONGEST_NAME), 0)


def _beside(folded: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    for number in range(max(map(len, folded), default=0)):
        yield [lines[number] if number < len(lines) else "" for lines in folded]


def _line(
    cells: Sequence[str],
    pieces: Sequence[str],
    widths: Sequence[int],
    right: Sequence[bool],
    paint: Paint,
    gap: int = GAP,
) -> str:
    sized = []
    for column, (cell, piece, room, to_the_right) in enumerate(zip(cells, pieces, widths, right, strict=True)):
        padding = " " * (room - cell_len(piece))
        shown = paint(column, cell, piece)
        if to_the_right:
            sized.append(padding + shown)
        else:
            sized.append(shown + (padding if column < len(cells) - 1 else ""))
    return (" " * gap).join(sized).rstrip() + "\n"


def _rule(widths: Sequence[int], gap: int = GAP) -> str:
    return (" " * gap).join("─" * room for room in widths) + "\n"


def _blocks(names: Sequence[str], rows: Iterable[Sequence[str]], width: int, paint: Paint) -> Iterator[tuple[str, int]]:
    """Yield each row as a block, one line per column; if names take half of a line, values begin on the next line."""
    arriving = iter(rows)
    first = next(arriving, None)
    if first is None:
        yield from ((f"{piece}\n", 0) for name in names for piece in fold(name, width, _UNDERSCORED))
        return
    margin = max(map(cell_len, names))
    is_narrow = margin + GAP > width // 2
    indent = min(GAP, width - 1) if is_narrow else margin + GAP
    for number, row in enumerate(chain([first], arriving), 1):
        yield f"── row {number} ──\n", 1
        for column, (name, cell) in enumerate(zip(names, row, strict=True)):
            held = [paint(column, cell, piece) for piece in fold(cell, max(width - indent, 1))] or [""]
            if is_narrow:
                for piece in fold(name, width, _UNDERSCORED):
                    yield f"{piece}\n", 0
            else:
                yield f"{set_cell_size(name, margin)}{' ' * GAP}{held.pop(0)}".rstrip() + "\n", 0
            for piece in held:
                yield f"{' ' * indent}{piece}".rstrip() + "\n", 0
