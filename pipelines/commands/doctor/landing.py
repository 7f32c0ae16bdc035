"""Checks of what lands: files in a wrong directory, feeds that fell silent, files that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from expectations.bronze.record_batches import UNREAD
from expectations.rules import counted
from pipelines.catalog import stages_of_type
from pipelines.commands import settings_checks
from pipelines.commands.check import MOST_NAMED, Check, environment_error
from pipelines.commands.doctor.warehouse import was_written
from pipelines.errors import AfterlogError
from pipelines.run import newest
from pipelines.sources import landing
from pipelines.sources.logs import files as log_files
from pipelines.sources.logs import unknown
from pipelines.stage import Land
from pipelines.steps.modules import listing
from pipelines.steps.waiting import unread
from pipelines.text import files_of
from pipelines.warehouse import jvmless, progress
from pipelines.warehouse.tables import Warehouse


def check_strays(warehouse: Warehouse) -> Iterator[Check]:
    """Name files and directories that no feed reads."""
    for name, sentence in settings_checks.stray_entries(warehouse.settings):
        yield Check("landing", "warning", sentence, f"Move {name!r} to where it belongs.")


def check_feeds(warehouse: Warehouse) -> Iterator[Check]:
    """Say of each feed what is left to read, and how old its newest record is."""
    for stage in stages_of_type(Land):
        try:
            yield _feed(warehouse, stage)
        except AfterlogError as error:  # other feeds can still be ok
            yield environment_error(f"landing {stage.directory}", str(error))


def _feed(warehouse: Warehouse, stage: Land) -> Check:
    """Tell what a feed has left to read, how old its newest record is, and whether it fell silent."""
    name = f"landing {stage.directory}"
    directory = warehouse.settings.landing_of(stage.directory)
    if not warehouse.opens_tables:
        files_there = unread(warehouse.settings, stage, None).values()
        finding = f"{directory}: {files_of(len(files_there), sum(file.size for file in files_there))}."
        return Check(name, "ok", f"{finding} Only a session can tell which are read, and how old the newest is.")
    known = progress.load(warehouse, stage.table)
    files = unread(warehouse.settings, stage, known).values()
    size = sum(file.size for file in files)
    finding = f"{files_of(len(files), size)}, to be read" if files else "all files are read"
    finding = f"{directory}: {finding}" if directory.is_dir() else f"{directory} does not exist: no files"
    newest_record = newest.of_feed(warehouse, stage)
    silence = newest.silence(warehouse, newest_record)
    if not newest_record.used:
        return Check(name, "ok", f"{newest_record.in_words}.")
    finding = f"{newest_record.in_words}; {finding}."
    if silence is None:
        return Check(name, "ok", f"{finding[0].upper()}{finding[1:]}")
    before = "which is longer than it may pause"
    if silence.pause is not None:
        before = f"and it never paused longer than {newest.lasting(silence.pause)} before"
    hours = (newest_record.age or silence.limit).total_seconds() / 3600
    return Check(
        name,
        "error",
        f"It fell silent, {before}: {finding}",
        f"Look at what lands it. If it may pause so long, set [silence] after_hours, "
        f"such as {stage.directory} = {2 * hours:.0f}.",
    )


def check_damaged_files(warehouse: Warehouse) -> Iterator[Check]:
    """Name landed files that could not be read to their end, and still cannot."""
    for stage in stages_of_type(Land):
        if not was_written(warehouse, stage.table):
            continue
        try:
            damages = _damages(warehouse, stage)
        except Exception:  # the table cannot be read, which ``check_tables`` reports
            continue
        directory = warehouse.settings.landing_of(stage.directory)
        again = f"Land each again from its source, under its name in {directory}; what is read already stays."
        without_layout = [damage for damage in damages if damage[1].startswith(unknown.FINDING)]
        others = [damage for damage in damages if damage not in without_layout]
        name = f"Name the layout in the settings, then land each again in {directory}, or remove it."
        for files, what_is_wrong, remedy in (
            (others, "cannot be read, or not to the end", again),
            (without_layout, f"{'is' if len(without_layout) == 1 else 'are'} in no known layout", name),
        ):
            if files:
                lines = [f"{source}: {_in_words(error)}" for source, error in files[:MOST_NAMED]]
                more = len(files) - MOST_NAMED
                lines += [f"And {more:,} more."] if more > 0 else []
                finding = f"{counted(len(files), 'file')} {what_is_wrong}. {' '.join(lines)}"
                remedies = dict.fromkeys(UNREAD[error][-1] if error in UNREAD else remedy for _, error in files)
                yield Check(f"files of {stage.directory}", "error", finding, " ".join(remedies))


def _in_words(error: str) -> str:
    """Return a sentence about a file, given the sentence or the code in its row of bronze."""
    words = f"it {UNREAD[error][0]}" if error in UNREAD else error
    return words if words.endswith(".") else f"{words}."


def _damages(warehouse: Warehouse, stage: Land) -> list[tuple[str, str]]:
    """Return the files of a feed that bronze records as damaged, each with its error, if they are still damaged."""
    directory = warehouse.settings.landing_of(stage.directory)
    listed = listing(stage, directory)
    if stage.reader:
        versions = 'SELECT "_source", version, error FROM rows WHERE error IS NOT NULL'
        rows = jvmless.query(warehouse, stage.table, versions, {"cluster": warehouse.cluster})
        latest = 'SELECT "_source", max(version) AS version FROM rows GROUP BY "_source"' if rows else ""
        last = jvmless.query(warehouse, stage.table, latest, {"cluster": warehouse.cluster}) if rows else []
        version = {row["_source"]: row["version"] for row in last}
        errors = {row["_source"]: row["error"] for row in rows if row["version"] in (None, version[row["_source"]])}
        return sorted((source, error) for source, error in errors.items() if source in listed)
    content = "raw" if stage.directory == "dlq" else "line"
    damages = f'SELECT DISTINCT "_source", error FROM rows WHERE error IS NOT NULL AND "{content}" IS NULL'
    rows = jvmless.query(warehouse, stage.table, damages, {"cluster": warehouse.cluster})
    errors = {row["_source"]: row["error"] for row in rows if row["_source"] in listed}
    packed = [listed[source] for source, error in errors.items() if not error.startswith(unknown.FINDING)]
    still = landing.damaged(directory, packed)
    pattern = log_files.pattern_of(warehouse.settings, stage.directory) if stage.is_rotated else None
    return sorted(
        (source, error)
        for source, error in errors.items()
        if source in still
        or landing.is_unread(source)
        or (
            error.startswith(unknown.FINDING)
            and log_files.is_unknown(directory, source, pattern, stage.directory == "broker-logs")
        )
    )
