"""Landing directory -> bronze: lines of new and changed files, inserted once on the contract's grain."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from expectations.contract import contract_of
from pipelines import lakehouse, progress, quality
from pipelines.errors import AfterlogError
from pipelines.progress import Progress
from pipelines.quality import StageRun
from pipelines.settings import Settings
from pipelines.sources import landing
from pipelines.sources.landing import LandedFile
from pipelines.stage import Stage

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger("afterlog")

MOST_NAMES = 200


def unread(settings: Settings, stage: Stage, known: Progress | None) -> dict[str, LandedFile]:
    """Return the feed's files that are new, or changed since they were read, by source."""
    directory = settings.landing_of(stage.directory)
    read = known.files if known and known.directory == str(directory) else {}
    if stage.reader:
        found: dict[str, LandedFile] = _reader(stage).unread(directory, read)
        return found
    listed = landing.listing(directory)
    return {source: file for source, file in listed.items() if read.get(source) != file}


def land(spark: SparkSession, settings: Settings, stage: Stage, run_id: str, started_at: datetime) -> StageRun | None:
    """Read what is new in the landing directory into bronze; None where nothing is."""
    target_id, _ = lakehouse.state(spark, settings, stage.table)
    known = progress.load(settings.warehouse, stage.table)
    if known and known.target_id != target_id:
        log.warning("%s is another table than the one its progress speaks of: reading all files again.", stage.table)
        known = None
    files = unread(settings, stage, known)
    if not files:
        return None
    directory = settings.landing_of(stage.directory)
    batch = _Landing(spark, settings, stage, run_id, started_at)
    try:
        counts = batch.insert(tuple(files.values()), damaged={})
    except AfterlogError:
        raise
    except Exception:
        gone = files.keys() - landing.listing(directory).keys()
        files = {source: file for source, file in files.items() if source not in gone}
        damaged = landing.damaged(directory, tuple(files.values()))
        if not damaged and not gone:
            raise
        for source in sorted(gone):
            log.warning("%r was removed before it was read.", source)
        for source, error in damaged.items():
            log.warning("%r is damaged: %s The lines before the damage are read.", source, error)
        if not files:
            return None
        counts = batch.insert(tuple(files.values()), damaged)
    read, skipped, accepted = counts
    stage_run = StageRun(
        run_id,
        stage.table,
        "passed",
        started_at,
        quality.now(),
        read=read,
        accepted=accepted,
        duplicates=read - skipped - accepted,
        skipped=skipped,
        message=f"{len(files):,} new or changed files",
    )
    quality.note(settings, stage_run)
    before = known.files if known and known.directory == str(directory) else {}
    progress.save(
        settings.warehouse,
        stage.table,
        replace(known or Progress(), target_id=target_id, directory=str(directory), files={**before, **files}),
    )
    return stage_run


def _reader(stage: Stage) -> ModuleType:
    return import_module(f"pipelines.sources.{stage.reader}")


class _Landing:
    """One batch of files on its way into bronze."""

    def __init__(
        self, spark: SparkSession, settings: Settings, stage: Stage, run_id: str, started_at: datetime
    ) -> None:
        self.spark = spark
        self.settings = settings
        self.stage = stage
        self.run_id = run_id
        self.started_at = started_at
        self.contract = contract_of(stage.table)

    def insert(self, files: Sequence[LandedFile], damaged: dict[str, str]) -> tuple[int, int, int]:
        """Insert the lines that bronze does not hold; return how many were read, skipped and inserted."""
        directory = self.settings.landing_of(self.stage.directory)
        events = getattr(import_module(f"pipelines.{self.stage.table}"), "events", None)
        if not self.stage.reader and not events:
            return self._insert(landing.lines(self.spark, directory, files, damaged), files)
        decoded: DataFrame
        if events:
            decoded = events(landing.lines(self.spark, directory, files, damaged, in_order=True))
        else:
            decoded = _reader(self.stage).read(self.spark, directory, files)
        decoded.persist()
        try:
            return self._insert(decoded, files)
        finally:
            decoded.unpersist()

    def _insert(self, lines: DataFrame, files: Sequence[LandedFile]) -> tuple[int, int, int]:
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        module = import_module(f"pipelines.{self.stage.table}")
        unwanted = module.skipped(lines) if hasattr(module, "skipped") else F.lit(False)
        read, skipped, repeats = self._census(lines, unwanted)
        if skipped:
            lines = lines.where(~unwanted)
        if self.stage.numbered and "_occurrence" not in lines.columns:
            equal = Window.partitionBy("_source", "line", "damage").orderBy(F.lit(0))
            lines = lines.withColumn("_occurrence", F.row_number().over(equal) if repeats else F.lit(1))
        rows: DataFrame = module.parse(lines, self.settings).withColumns(
            {"_ingested_at": F.lit(self.started_at), "_run_id": F.lit(self.run_id)}
        )
        grain = list(self.contract.grain)
        if repeats and not self.stage.numbered:
            rows = rows.dropDuplicates(grain)
        standing = lakehouse.standing(self.spark, self.settings, self.stage.table, self._from(files))
        if standing is not None:
            rows = rows.join(standing.select(grain), grain, how="left_anti")
        written = lakehouse.insert(self.settings, self.stage.table, rows, self.contract, self._from(files))
        return read, skipped, written

    def _census(self, lines: DataFrame, unwanted: Column) -> tuple[int, int, bool]:
        """Count lines, all and skipped; tell whether a file may hold a wanted one twice, from their 64-bit hashes."""
        from pyspark.sql import functions as F

        content = [name for name in lines.columns if name != "_source"]
        hashed = F.when(~unwanted, F.xxhash64(*content)).alias("hash")
        counted = (
            lines.groupBy("_source", hashed)
            .agg(F.count("*").alias("times"))
            .agg(
                F.sum("times").alias("read"),
                F.sum(F.when(F.col("hash").isNull(), F.col("times"))).alias("skipped"),
                F.max(F.when(F.col("hash").isNotNull(), F.col("times"))).alias("most"),
            )
            .collect()[0]
        )
        return counted["read"] or 0, counted["skipped"] or 0, (counted["most"] or 0) > 1

    def _from(self, files: Sequence[LandedFile]) -> Column:
        """Return the predicate on bronze that rows of these files satisfy, in literals, so that Delta skips files."""
        from pyspark.sql import functions as F

        sources = [file.source for file in files]
        if len(sources) <= MOST_NAMES:
            return F.col("_source").isin(sources)
        return F.col("_source").between(min(sources), max(sources))
