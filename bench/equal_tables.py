"""``make equal-tables ARGS="--base REV"``: run two versions of Afterlog on the same files and compare all their tables.

Both versions read one landing directory, which is filled in two batches, and write a warehouse each. Tables are
compared as multisets of rows. Columns that tell of the run, not of the data, are left out (``LEFT_OUT``). Messages
name columns and hashes, never values. Exit code: 0 equal, 1 different, 2 wrong arguments, 3 a version cannot run.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

from arro3.core import DataType, Field
from deltalake import DeltaTable, QueryBuilder

from bench import landings
from bench.landings import Landing
from expectations.rules import counted
from pipelines.settings import ROOT

LEFT_OUT = {
    "_ingested_at": "when the run began",
    "_run_id": "which run it was",
    "gold.dlq_counts.first_accepted_at": "when a run began",
    "gold.dlq_counts.last_accepted_at": "when a run began",
    "gold.dlq_summary.first_accepted_at": "when a run began",
    "gold.dlq_summary.last_accepted_at": "when a run began",
    "silver.dlq_refusals.first_at": "when a run began, for lines that tell no time",
    "silver.dlq_refusals.last_at": "when a run began, for lines that tell no time",
    "silver.dlq_refusals.broken_rules": "the same times by rule; gold.trust_findings is made of its counts",
    "silver.topic_policies.observed_at": "when a run asked the cluster",
    "quality.stage_runs.run_id": "which run it was",
    "quality.stage_runs.started_at": "when the stage began",
    "quality.stage_runs.finished_at": "when the stage ended",
    "quality.stage_runs.seconds": "how long the stage took",
    "quality.stage_runs.input_from": "a version of a Delta log: it counts commits, not rows",
    "quality.stage_runs.input_to": "a version of a Delta log: it counts commits, not rows",
    "quality.stage_runs.message": "words, which may change",
    "quality.expectation_results.run_id": "which run it was",
    "quality.expectation_results.examined_at": "when the gate ran",
    "quality.expectation_results.coordinates": "examples, which depend on the order of rows",
    "quality.expectation_results.places": "words, which may change",
    "quality.gaps.run_id": "which run it was",
    "quality.gaps.found_at": "when a run found it",
}
"""Columns that two runs of one version fill differently, in all tables or in one, each with the reason."""
LAYERS = ("bronze", "silver", "gold", "quarantine", "held", "quality")
LINKED = (".venv", ".jars", ".cache/java")
SUCCEEDED = (0, 1)
"""Exit codes of a run that did its work; 1: a gate held rows."""
MOST_PAIRED = 500
"""Rows of the other version among which the most similar one is looked for."""


class CannotCompare(Exception):
    """A version cannot be checked out or run, or an argument is wrong; ``code`` is the exit code."""

    def __init__(self, message: str, code: int = 3) -> None:
        """Keep the exit code beside the message."""
        super().__init__(message)
        self.code = code


# --- comparison -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Renames:
    """New names by old ones: of tables (``silver.x``), and of columns (``silver.x.y``, by the table's new name)."""

    tables: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @staticmethod
    def parse(texts: Sequence[str]) -> Renames:
        """Return the renames that ``layer.table=layer.table`` and ``layer.table.column=column`` give.

        Raises CannotCompare: a text has another form.
        """
        tables, columns = {}, {}
        for text in texts:
            old, _, new = text.partition("=")
            dots = (old.count("."), new.count("."))
            if not old or not new or dots not in ((1, 1), (2, 0)):
                raise CannotCompare(f"--rename {text}: give layer.table=layer.table or layer.table.column=column.", 2)
            if dots == (1, 1):
                tables[old] = new
            else:
                table, _, column = old.rpartition(".")
                columns[table, column] = new
        return Renames(tables, {(tables.get(table, table), old): new for (table, old), new in columns.items()})

    def table(self, name: str) -> str:
        """Return the table's new name."""
        return self.tables.get(name, name)

    def column(self, table: str, name: str) -> str:
        """Return the new name of a column; the table goes by its new name."""
        return self.columns.get((table, name), name)


@dataclass(frozen=True)
class Stored:
    """A table as a version wrote it, under its new names."""

    name: str
    delta: DeltaTable
    renames: Renames

    @cached_property
    def types(self) -> dict[str, str]:
        """The Delta types of the columns that are compared, in order."""
        fields = json.loads(self.delta.schema().to_json())["fields"]
        kinds = {self.renames.column(self.name, column["name"]): json.dumps(_bare(column["type"])) for column in fields}
        return {name: kind for name, kind in kinds.items() if not _is_left_out(self.name, name)}

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the values of these columns, row by row; a timestamp is its microseconds."""
        for batch in QueryBuilder().register("stored", self.delta).execute("SELECT * FROM stored"):
            values = {}
            for old in batch.schema.names:
                if (name := self.renames.column(self.name, old)) in columns:
                    # Python's datetime ends with the year 9999.
                    values[name] = batch[old].cast(_without_times(batch[old].type)).to_pylist()
            rows: Iterable[tuple[Any, ...]] = zip(*(values[name] for name in columns), strict=True) if columns else ()
            if self.name.startswith("quality."):
                rows = (self._of_quality(dict(zip(columns, row, strict=True))) for row in rows)
            yield from rows

    def _of_quality(self, row: dict[str, Any]) -> tuple[Any, ...]:
        """Return a row of a quality table with the new names of the table and the column that it is about."""
        if isinstance(table := row.get("table"), str):
            row["table"] = self.renames.table(table)
            if isinstance(code := row.get("expectation"), str):
                column, dot, rule = code.partition(".")
                row["expectation"] = f"{self.renames.column(row['table'], column)}{dot}{rule}"
        return tuple(row.values())


def _is_left_out(table: str, column: str) -> bool:
    return column in LEFT_OUT or f"{table}.{column}" in LEFT_OUT


def _bare(kind: Any) -> Any:
    """Return a Delta type without comments and without what is nullable in it."""
    if isinstance(kind, dict):
        return {key: _bare(value) for key, value in kind.items() if key not in ("metadata", "nullable", "containsNull")}
    return [_bare(part) for part in kind] if isinstance(kind, list) else kind


def _without_times(kind: DataType) -> DataType:
    """Return an Arrow type with integers in place of timestamps, at any depth."""
    if DataType.is_timestamp(kind):
        return DataType.int64()
    if DataType.is_struct(kind):
        return DataType.struct([_field_without_times(column) for column in kind.fields])
    if DataType.is_list(kind) and kind.value_field is not None:
        return DataType.list(_field_without_times(kind.value_field))
    return kind


def _field_without_times(column: Field) -> Field:
    return Field(column.name, _without_times(column.type), nullable=column.nullable)


@dataclass
class Comparison:
    """What was found about one table; the number of rows is None where a version lacks the table."""

    table: str
    base: int | None
    now: int | None
    findings: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Tell whether both versions gave the same table."""
        return not self.findings


class Comparer:
    """Compares tables; hashes are keyed anew in each process, so that nobody can guess a value from its hash."""

    def __init__(self, renames: Renames, most_shown: int = 3) -> None:
        """Keep the renames, and how many differing rows of a table are shown."""
        self.renames = renames
        self.most_shown = most_shown
        self.key = secrets.token_bytes(32)

    def warehouses(self, base: Path, now: Path) -> list[Comparison]:
        """Return a comparison of each table of two warehouses, in the order of the layers."""
        before, after = _tables(base, self.renames), _tables(now, Renames())
        order = sorted(before.keys() | after.keys(), key=lambda name: (LAYERS.index(name.partition(".")[0]), name))
        return [self.tables(name, before.get(name), after.get(name)) for name in order]

    def tables(self, name: str, base: Stored | None, now: Stored | None) -> Comparison:
        """Return the comparison of one table as two versions wrote it; None: a version has no such table."""
        if base is None or now is None:
            before, after = (
                None if stored is None else sum(1 for _ in stored.rows(list(stored.types))) for stored in (base, now)
            )
            return Comparison(name, before, after, ["the table is in one version only"])
        findings = [f"column {column} is in base only" for column in base.types if column not in now.types]
        findings += [f"column {column} is in now only" for column in now.types if column not in base.types]
        shared = [column for column in base.types if column in now.types]
        findings += [
            f"column {column} has another type" for column in shared if base.types[column] != now.types[column]
        ]
        old, new = self._counted(base, shared), self._counted(now, shared)
        if old != new:
            findings += self._differences(base, now, shared, old, new)
        return Comparison(name, old.total(), new.total(), findings)

    def hash(self, value: object) -> str:
        """Return a keyed hash of a value or a row."""
        return blake2b(repr(value).encode("utf-8", "surrogatepass"), key=self.key, digest_size=16).hexdigest()

    def _counted(self, stored: Stored, columns: Sequence[str]) -> Counter[str]:
        return Counter(self.hash(row) for row in stored.rows(columns))

    def _differences(
        self, base: Stored, now: Stored, columns: Sequence[str], before: Counter[str], after: Counter[str]
    ) -> list[str]:
        missing, added = before - after, after - before
        lines = [f"{counted(missing.total(), 'row')} in base only, {counted(added.total(), 'row')} in now only"]
        shown = 0
        for row in missing.keys() | added.keys():
            if before[row] and after[row] and shown < self.most_shown:
                lines.append(
                    f"row {row[:12]}: {counted(before[row], 'copy')} in base, {counted(after[row], 'copy')} in now"
                )
                shown += 1
        lost = self._kept(base, columns, {row for row in missing if not after[row]})
        new = self._kept(now, columns, {row for row in added if not before[row]})
        pairs: Counter[str] = Counter()
        for number, (row, values) in enumerate(lost.items()):
            if number >= MOST_PAIRED:
                break
            like = self._most_similar(values, new)
            if like is None:
                if shown < self.most_shown:
                    lines.append(f"row {row[:12]} is in base only, and no row in now is like it")
                    shown += 1
                continue
            theirs = new.pop(like)
            different = [index for index, digest in enumerate(values) if digest != theirs[index]]
            pairs.update(columns[index] for index in different)
            if shown < self.most_shown:
                words = (f"{columns[index]} {values[index][:12]} -> {theirs[index][:12]}" for index in different)
                lines.append(f"row {row[:12]} -> {like[:12]}: {', '.join(words)}")
                shown += 1
        for row in list(new)[: max(0, self.most_shown - shown)]:
            lines.append(f"row {row[:12]} is in now only, and no row in base is like it")
        if pairs:
            counts = ", ".join(f"{column} ({count})" for column, count in pairs.most_common())
            lines.append(f"columns that differ between similar rows: {counts}")
        return lines

    def _kept(self, stored: Stored, columns: Sequence[str], wanted: set[str]) -> dict[str, tuple[str, ...]]:
        """Return the hashes of each value of the wanted rows, by the row's hash."""
        kept = {}
        for values in stored.rows(columns) if wanted else ():
            if (row := self.hash(values)) in wanted:
                kept[row] = tuple(map(self.hash, values))
        return kept

    def _most_similar(self, values: tuple[str, ...], rows: Mapping[str, tuple[str, ...]]) -> str | None:
        """Return the hash of the row that shares most values, if it shares at least half of them."""
        best, most = None, (len(values) + 1) // 2 - 1
        for _, (row, theirs) in zip(range(MOST_PAIRED), rows.items(), strict=False):
            same = sum(map(str.__eq__, values, theirs))
            if same > most:
                best, most = row, same
        return best


def _tables(warehouse: Path, renames: Renames) -> dict[str, Stored]:
    """Return the tables of a warehouse by their new names."""
    tables = {}
    for log in warehouse.glob("*/*/_delta_log"):
        name = renames.table(".".join(log.parent.relative_to(warehouse).parts))
        if name.partition(".")[0] in LAYERS:
            tables[name] = Stored(name, DeltaTable(str(log.parent)), renames)
    return tables


# --- runs of two versions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Version:
    """A checkout of Afterlog whose own code runs."""

    name: str
    checkout: Path

    def run(self, warehouse: Path, landing: Path) -> int:
        """Run all feeds on what landed and return the exit code.

        Raises CannotCompare: the run did not do its work.
        """
        done = self._python("-m", "pipelines.start", "run", "--warehouse", str(warehouse), "--landing", str(landing))
        if done.returncode not in SUCCEEDED or not any(warehouse.glob("bronze/*/_delta_log")):
            raise CannotCompare(f"{self.name} ends with {done.returncode}:\n{done.stderr[-2_000:]}")
        return done.returncode

    def check(self) -> None:
        """Raise CannotCompare if Python takes the code of another checkout."""
        done = self._python("-c", "import expectations, pipelines; print(pipelines.__file__, expectations.__file__)")
        places = [Path(path).resolve() for path in done.stdout.split()]
        if len(places) != 2 or not all(path.is_relative_to(self.checkout.resolve()) for path in places):
            raise CannotCompare(f"{self.name} does not run its own code.\n{done.stderr[-2_000:]}")

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Settings come from the version's own conf/afterlog.toml alone.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AFTERLOG_")}
        return subprocess.run(
            [str(self.checkout / ".venv" / "bin" / "python"), *arguments],
            cwd=self.checkout,
            env=environment | {"PYTHONPATH": str(self.checkout)},
            capture_output=True,
            text=True,
            check=False,
        )


def checked_out(name: str, revision: str | None, directory: Path) -> Version:
    """Copy a revision's files (None: those of this checkout, with uncommitted changes) and give it what it runs with.

    It shares this checkout's packages and jars where its locks agree with them. Else ``make setup`` installs its own.

    Raises CannotCompare: there is no such revision, or its set-up fails.
    """
    directory.mkdir(parents=True)
    if revision is None:
        listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard").decode().split("\0")
        for file in filter(None, listed):
            if (ROOT / file).is_file() and not (ROOT / file).is_symlink():
                (directory / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, directory / file)
    else:
        commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
        with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", commit))) as archive:
            archive.extractall(directory, filter="data")
    if _shares_packages(directory):
        for link in LINKED:
            if (ROOT / link).exists():
                (directory / link).parent.mkdir(exist_ok=True)
                (directory / link).symlink_to((ROOT / link).resolve())
    elif (done := subprocess.run(["make", "setup"], cwd=directory, check=False, stdout=sys.stderr)).returncode:
        raise CannotCompare(f"make setup of {name} ends with {done.returncode}.")
    version = Version(name, directory)
    version.check()
    return version


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise CannotCompare(f"git {arguments[0]} {arguments[-1]} fails. {done.stderr.decode(errors='replace')}", 2)
    return done.stdout


def _shares_packages(checkout: Path) -> bool:
    """Tell whether this checkout's packages and jars have the versions that another one's locks name."""
    theirs, ours = (
        {(package["name"], package.get("version")) for package in tomllib.loads(text)["package"]}
        for text in ((directory / "uv.lock").read_text(encoding="utf-8") for directory in (checkout, ROOT))
    )
    jars = Path("conf", "ivy.xml")
    return theirs <= ours and (checkout / jars).read_bytes() == (ROOT / jars).read_bytes()


def run_both(
    base: Version, now: Version, landing: Landing, scratch: Path, say: Callable[[str], None]
) -> tuple[Path, Path]:
    """Land each batch and run both versions on it; return both warehouses.

    Raises CannotCompare: a run fails.
    """
    landed, warehouses = scratch / "landing", (scratch / "base", scratch / "now")
    landed.mkdir(parents=True)
    for batch in range(landings.BATCHES):
        landing.land(landed, batch)
        for version, warehouse in zip((base, now), warehouses, strict=True):
            began = time.monotonic()
            code = version.run(warehouse, landed)
            say(f"{landing.name}, batch {batch + 1}: {version.name} ends with {code}, {time.monotonic() - began:.0f} s")
    return warehouses


# --- command ----------------------------------------------------------------------------------------------------------


def show(title: str, comparisons: Sequence[Comparison]) -> None:
    """Print a line per table, and below it what differs."""
    width = max([len("table"), *(len(comparison.table) for comparison in comparisons)])
    print(f"\n{title}\n{'table':{width}}  {'rows base':>10}  {'rows now':>10}  equal")
    for comparison in comparisons:
        base, now = ("none" if count is None else f"{count:,}" for count in (comparison.base, comparison.now))
        print(f"{comparison.table:{width}}  {base:>10}  {now:>10}  {'yes' if comparison.is_equal else 'NO'}")
        for finding in comparison.findings:
            print(f"    {finding}")
    different = sum(not comparison.is_equal for comparison in comparisons)
    empty = sum(comparison.is_equal and not comparison.base for comparison in comparisons)
    print(f"{len(comparisons)} tables: {len(comparisons) - different} equal ({empty} of them empty), {different} not")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two versions, or two warehouses that are there already, and return the exit code."""
    parser = argparse.ArgumentParser(prog="equal_tables", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--base", metavar="REV", help="the version before")
    what.add_argument("--warehouses", nargs=2, type=Path, metavar=("BASE", "NOW"), help="compare these, run nothing")
    parser.add_argument("--now", metavar="REV", help="the version after; default: this checkout as it is")
    parser.add_argument("--records", type=int, default=20_000, help="generated dead letters; default: 20000")
    parser.add_argument("--only", choices=("captures", "generated"), help="one of the two landing directories")
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help="layer.table or .column")
    parser.add_argument("--leave-out", action="append", default=[], metavar="COLUMN", help="[layer.table.]column")
    parser.add_argument("--rows", type=int, default=3, help="differing rows to show per table; default: 3")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep checkouts, files and warehouses there")
    given = parser.parse_args(arguments)
    if given.records < 100:
        parser.error("--records: give 100 or more")
    LEFT_OUT.update(dict.fromkeys(given.leave_out, "the command line says so"))
    try:
        comparer = Comparer(Renames.parse(given.rename), given.rows)
        if given.warehouses:
            if absent := [warehouse for warehouse in given.warehouses if not any(warehouse.glob("*/*/_delta_log"))]:
                raise CannotCompare(f"There is no warehouse in {absent[0]}.", 2)
            compared = comparer.warehouses(*given.warehouses)
            show("warehouses", compared)
            return 0 if all(comparison.is_equal for comparison in compared) else 1
        return _compare_versions(given, comparer)
    except CannotCompare as error:
        print(error, file=sys.stderr)
        return error.code


def _compare_versions(given: argparse.Namespace, comparer: Comparer) -> int:
    if given.keep is not None and given.keep.exists() and any(given.keep.iterdir()):
        raise CannotCompare(f"{given.keep} is not empty.", 2)
    scratch = Path(given.keep or tempfile.mkdtemp(prefix="equal-tables-")).absolute()
    are_equal = True
    try:
        base = checked_out(f"base ({given.base})", given.base, scratch / "versions" / "base")
        now = checked_out(f"now ({given.now or 'this checkout'})", given.now, scratch / "versions" / "now")
        for landing in (landings.captures(), landings.generated(given.records)):
            if given.only in (None, landing.name):
                say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
                compared = comparer.warehouses(*run_both(base, now, landing, scratch / landing.name, say))
                show(landing.name, compared)
                sys.stdout.flush()
                are_equal &= all(comparison.is_equal for comparison in compared)
    finally:
        if given.keep is None:
            shutil.rmtree(scratch, ignore_errors=True)
    return 0 if are_equal else 1


if __name__ == "__main__":
    sys.exit(main())
