"""Landing directory, topics -> bronze: lines of new and changed files, new records, once on the contract's grain."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING

from expectations.contract import contract_of
from expectations.rules import counted
from pipelines import moments
from pipelines.columns.cached import cached
from pipelines.columns.stamps import stamped
from pipelines.errors import AfterlogError, EnvironmentLacking
from pipelines.kafka import offsets
from pipelines.kafka import records as kafka_records
from pipelines.kafka.cluster import Cluster, TopicSnapshot, connected
from pipelines.kafka.errors import Changed, is_kafkas, sentence_of
from pipelines.kafka.offsets import Gap, Log, OffsetRange, TopicProgress
from pipelines.settings import Topics
from pipelines.sources import landing
from pipelines.sources.landing import LandedFile
from pipelines.stage import Land
from pipelines.steps.modules import land_module, listing, reader_module
from pipelines.steps.waiting import look, topic_progress_of, unread
from pipelines.steps.watch import NOBODY, Watch
from pipelines.text import files_of, first_names
from pipelines.warehouse import erased, few_rows, jvmless, progress, quality
from pipelines.warehouse.progress import Progress
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.ranges import Range, points
from pipelines.warehouse.tables import ROWS_OF_A_FILE, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger("afterlog")

MOST_NAMES = 200
MOST_ATTEMPTS = 3
MOST_TOPICS = 5  # named in a message
MOST_SKIPPED = 12  # names of skipped lines, such as APIs, in a message


@dataclass(frozen=True)
class Landed:
    """What a landing stage did (None if nothing was new), and the error that left topics unread, if any.

    ``is_away`` tells that the cluster did not answer, so that its other topics cannot be read either.
    """

    stage_run: StageRun | None
    left: AfterlogError | None = None
    is_away: bool = False


def land(warehouse: Warehouse, stage: Land, run_id: str, started_at: datetime, watch: Watch = NOBODY) -> Landed:
    """Read new and changed files, then new records of topics, into bronze."""
    target_id, version = warehouse.state(stage.table)
    known = progress.load(warehouse, stage.table)
    if known and (known.target_id != target_id or known.is_ahead_of(version)):
        log.warning("%s is not the table that its progress speaks of, or an older one: reading all again.", stage.table)
        known = None
    known = replace(known or Progress(), target_id=target_id)
    if known.target_version != version:
        before = known.target_version or 0
        by_cluster = {}
        for cluster, topics_read in known.topics.items():
            mark = offsets.mark_of(cluster, topics_read.pending)
            written = bool(topics_read.pending) and warehouse.was_committed(stage.table, before, mark)
            by_cluster[cluster] = offsets.doubted(topics_read, written)
        known = replace(known, topics=by_cluster, target_version=version)
    landing_ = _Landing(warehouse, stage, run_id, started_at, known, watch)
    landing_.read_files()
    left, is_away = None, False
    if topics := warehouse.settings.topics_of(stage.directory):
        try:
            left = landing_.read_topics(topics)
        except AfterlogError as error:
            left, is_away = error, isinstance(error, EnvironmentLacking)
    else:
        landing_.record_gaps()
    return Landed(landing_.stage_run, left, is_away)


def _listed(counts: Counter[str]) -> str:
    """Return counts in words, greatest first."""
    most = [f"{name} {times:,}" for name, times in sorted(counts.items(), key=lambda count: (-count[1], count[0]))]
    return first_names(most, MOST_SKIPPED)


class _Landing:
    """One run of a landing stage: it reads the new input of a feed into bronze."""

    def __init__(
        self,
        warehouse: Warehouse,
        stage: Land,
        run_id: str,
        started_at: datetime,
        known: Progress,
        watch: Watch,
    ) -> None:
        self.watch = watch
        self.warehouse = warehouse
        self.settings = warehouse.settings
        self.stage = stage
        self.run_id = run_id
        self.started_at = started_at
        self.known = known
        self.contract = contract_of(stage.table)
        self.module = land_module(stage)
        self.stage_run: StageRun | None = None
        self.files = 0
        self.passed_over = ""  # words for files that are passed over by their names
        self.records = 0
        self.topics: set[str] = set()
        self.skipped: Counter[str] = Counter()  # skipped lines by name, if the table's module names them
        self.forms: Counter[str] = Counter()  # inserted records of files by their form, if the table has forms
        self.unreadable: AfterlogError | None = None  # why a partition could not be read
        self.most: int | None = None  # offsets of a batch, after a larger one could not be read

    def read_files(self) -> None:
        """Read new and changed files."""
        files = unread(self.settings, self.stage, self.known)
        if not files:
            return
        self.watch.finds(files_of(len(files), sum(file.size for file in files.values())))
        directory = self.settings.landing_of(self.stage.directory)
        try:
            counts = self.insert(tuple(files.values()), damaged={})
        except AfterlogError:
            raise
        except Exception:
            gone = files.keys() - listing(self.stage, directory).keys()
            files = {source: file for source, file in files.items() if source not in gone}
            damaged = landing.damaged(directory, tuple(files.values()))
            if not damaged and not gone:
                raise
            for source in sorted(gone):
                log.warning("%r was removed before it was read.", source)
            for source, error in damaged.items():
                log.warning("%r is damaged: %s The lines before the damage are read.", source, error)
            if not files:
                return
            self.skipped.clear()
            counts = self.insert(tuple(files.values()), damaged)
        self.files = len(files)
        there = listing(self.stage, directory)
        if self.stage.reader:
            self.passed_over = reader_module(self.stage).passed_over(there)
        self.count(*counts)
        self.save(self.known.with_files(directory, files, there))

    def read_topics(self, topics: Topics) -> AfterlogError | None:
        """Read the topics up to their present ends, batch by batch; return the error that left some unread, if any.

        A partition that cannot be read keeps no other one from being read.

        Raises AfterlogError: the cluster does not answer, or refuses this client.
        """
        self.record_gaps()  # gaps that an earlier run found, but was killed before it recorded them
        with connected(self.settings) as cluster:
            looked_at = moments.now()
            snapshot = self.look(cluster, topics)
            ends = snapshot.logs
            while batch := self.topic_progress.pending or self.next_batch(topics, ends):
                self.watch.finds(f"{counted(sum(span.length for span in batch), 'offset')} of topics")
                self.remember(replace(self.topic_progress, pending=batch))
                ends = self.take(cluster, topics, ends)
        if ends is snapshot.logs:  # no topic was planned anew in between
            progress.note_read(self.warehouse, self.stage.table, snapshot.whole, looked_at)
        return self.unreadable or snapshot.complaint

    def next_batch(self, topics: Topics, ends: Sequence[Log]) -> tuple[OffsetRange, ...]:
        """Return the next offsets to read."""
        most = topics.max_records_per_batch if self.most is None else min(self.most, topics.max_records_per_batch)
        return offsets.batch(offsets.unread(self.topic_progress.followed, ends), most)

    def take(self, cluster: Cluster, topics: Topics, ends: tuple[Log, ...]) -> tuple[Log, ...]:
        """Read the pending batch; return the logs, whose ends are where this run stops reading.

        A read fails if retention or a person has removed its offsets. Then plan what is left again, and try that, in at
        most ``MOST_ATTEMPTS`` attempts.
        """
        for left in reversed(range(MOST_ATTEMPTS)):
            try:
                read, skipped, accepted = self.insert_pending(cluster, topics)
            except Exception as error:
                if not isinstance(error, Changed) and not is_kafkas(error):
                    raise
                snapshot = self.look(cluster, topics)
                partitions = {(log.topic_id, log.partition) for log in ends}
                ends = tuple(log for log in snapshot.logs if (log.topic_id, log.partition) in partitions)
                if self.topic_progress.pending and not left:
                    bad = self.take_apart(cluster, topics, error)
                    ends = tuple(log for log in ends if (log.topic_id, log.partition) not in bad)
            else:
                self.pass_pending(read, skipped, accepted)
            if not self.topic_progress.pending:
                break
        return ends

    def take_apart(self, cluster: Cluster, topics: Topics, error: Exception) -> set[tuple[str, int]]:
        """Read the pending batch partition by partition; return the ones that cannot be read, by topic id and number.

        The next run tries these again. A damaged record is told at once; a leader that does not answer is waited for.

        Raises AfterlogError: partitions were waited for as long as ``MOST_ATTEMPTS`` leaders that do not answer take.
        """
        batch = self.topic_progress.pending
        bad: set[tuple[str, int]] = set()
        waited = 0.0
        for span in batch:
            began = monotonic()
            self.remember(replace(self.topic_progress, pending=(span,)))
            try:
                if len(batch) == 1:
                    raise error
                self.pass_pending(*self.insert_pending(cluster, topics))
            except Exception as its:
                if not isinstance(its, Changed) and not is_kafkas(its):
                    raise
                log.warning(
                    "Partition %s of topic %s cannot be read: the next run tries it.", span.partition, span.topic
                )
                self.unreadable = self.unreadable or sentence_of(its, self.settings.kafka)
                self.remember(replace(self.topic_progress, pending=()))
                bad.add((span.topic_id, span.partition))
                waited += monotonic() - began
                if waited > MOST_ATTEMPTS * kafka_records.poll_seconds(self.settings):
                    raise self.unreadable from None
        return bad

    def pass_pending(self, read: int, skipped: int, accepted: int) -> None:
        """Count what the pending batch gave, and save that it is read."""
        batch = self.topic_progress.pending
        if read:
            self.records += read
            self.topics |= {span.topic for span in batch}
            self.count(read, skipped, accepted)
        followed = offsets.passed(self.topic_progress.followed, batch)
        self.save(self._with(replace(self.topic_progress, followed=followed, pending=())))

    def insert_pending(self, cluster: Cluster, topics: Topics) -> tuple[int, int, int]:
        """Insert the records of the pending batch; return how many were read, skipped and inserted.

        While Spark cannot hold the time of a record in it, halve the batch. What is left at last is read without Spark.
        """
        while True:
            batch = self.topic_progress.pending
            size = sum(span.length for span in batch)
            try:
                done = self.insert_records(cluster, topics, batch)
            except Exception as error:
                if not kafka_records.has_far_time(error):
                    raise
                if size <= kafka_records.FEW:
                    return self.insert_records(cluster, topics, batch, kafka_records.few_records)
                self.most = max(kafka_records.FEW, size // 2)
                self.remember(replace(self.topic_progress, pending=offsets.batch(batch, self.most)))
            else:
                self.most = None if self.most is None else 2 * self.most
                return done

    @property
    def topic_progress(self) -> TopicProgress:
        """How far the topics are read."""
        return topic_progress_of(self.settings, self.known)

    def look(self, cluster: Cluster, topics: Topics) -> TopicSnapshot:
        """Take a snapshot of the topics, save the progress that follows from it, and record the gaps."""
        snapshot, plan = look(cluster, topics, self.topic_progress)
        at = moments.now().isoformat()
        gaps = tuple(Gap(span, self.run_id, at) for span in plan.gaps)
        for span in plan.gaps:
            log.warning("%s were gone before they were read: see quality.gaps.", span.in_words)
        gaps = (*self.topic_progress.gaps, *gaps)
        self.remember(TopicProgress(plan.followed, plan.pending, gaps, snapshot.cluster_id))
        self.record_gaps()
        return snapshot

    def record_gaps(self) -> None:
        """Record the gaps that are not recorded yet; a crash in between does not record a gap twice."""
        if self.topic_progress.gaps:
            quality.record_gaps(self.warehouse, self.stage.table, self.topic_progress.gaps)
            self.remember(replace(self.topic_progress, gaps=()))

    def remember(self, topic_progress: TopicProgress) -> None:
        """Save how far the topics are read; the table's version in progress stays the same."""
        if topic_progress != self.topic_progress:
            self.known = self._with(topic_progress)
            progress.save(self.warehouse, self.stage.table, self.known)

    def _with(self, topic_progress: TopicProgress) -> Progress:
        return replace(self.known, topics=self.known.topics | {self.settings.cluster: topic_progress})

    def save(self, known: Progress) -> None:
        """Save progress with the table's present version."""
        _, version = self.warehouse.state(self.stage.table)
        self.known = replace(known, target_version=version)
        progress.save(self.warehouse, self.stage.table, self.known)

    def count(self, read: int, skipped: int, accepted: int) -> None:
        """Add counts to the stage's run, and note it."""
        before = self.stage_run or StageRun(self.run_id, self.stage.table, "passed", self.started_at, moments.now())
        said = [counted(self.files, "new or changed file")] if self.files else []
        topics = ", ".join(sorted(self.topics)[:MOST_TOPICS])
        said += [f"{counted(self.records, 'record')} of {topics}"] if self.records else []
        more = len(self.topics) - MOST_TOPICS
        said[-1:] = [f"{said[-1]} and {more:,} more"] if more > 0 else said[-1:]
        has_forms = bool(self.forms.keys() - {self.module.ordinary_form})
        said += [f"recognised {_listed(self.forms)}"] if has_forms else []
        said += [f"skipped {_listed(self.skipped)}"] if self.skipped else []
        said += [f"passed over: {self.passed_over}"] if self.passed_over else []
        self.stage_run = replace(
            before,
            finished_at=moments.now(),
            read=before.read + read,
            accepted=before.accepted + accepted,
            duplicates=before.duplicates + read - skipped - accepted,
            skipped=before.skipped + skipped,
            message="; ".join(said),
            warns=has_forms,
        )
        quality.note(self.warehouse, self.stage_run)

    def insert_records(
        self,
        cluster: Cluster,
        topics: Topics,
        batch: Sequence[OffsetRange],
        read_records: Callable[..., DataFrame] | None = None,
    ) -> tuple[int, int, int]:
        """Insert the records that bronze does not hold; return how many were read, skipped and inserted.

        The records are persisted, as the check that the topics are still the same comes after the read and before the
        first write.
        """
        from pyspark.sql import functions as F

        parse_records = self.module.parse_records
        read_records = read_records or kafka_records.records
        records = read_records(self.warehouse.spark, self.settings, topics, batch)
        lines = records if parse_records else self.module.read_records(kafka_records.lines(records), self.settings)
        with cached(lines) as held:
            unwanted = self.module.skipped(held)
            may_be_few = sum(span.length for span in batch) <= few_rows.MOST_ROWS
            size = F.sum(kafka_records.size_of(held)) if may_be_few else F.lit(None)
            counts = (F.count("*").alias("read"), F.count_if(unwanted).alias("skipped"), size.alias("bytes"))
            counted = held.agg(*counts).collect()[0]
            read, skipped = int(counted["read"]), int(counted["skipped"])
            cluster.check(batch)
            if skipped:
                names = held.where(unwanted).groupBy(self.module.skipped_as(held).alias("name")).count()
                known = names.where("name IS NOT NULL").orderBy(F.desc("count")).limit(MOST_NAMES)
                self.skipped.update(dict(known.collect()))
            if read == skipped:
                return read, skipped, 0
            wanted = held.where(~unwanted) if skipped else held
            parse = parse_records or self.module.parse
            rows = stamped(parse(wanted, self.settings), self.started_at, self.run_id)
            rows = erased.none_of(rows, self.warehouse, self.stage.table)
            rows = rows.coalesce(1 + (read - skipped) // ROWS_OF_A_FILE)
            are_few = counted["bytes"] is not None and counted["bytes"] <= few_rows.MOST_PLAIN_BYTES
            return read, skipped, self._insert_new(rows, batch, are_few)

    def _insert_new(self, rows: DataFrame, batch: Sequence[OffsetRange], are_few: bool) -> int:
        """Insert a batch's rows that the table does not hold; look into the table only if its offsets are doubtful."""
        among = _of_sources([span.source for span in batch])
        if any(column.name == "offset" for column in self.contract.columns):
            offset = min(span.start for span in batch), max(span.end for span in batch) - 1
            among = [{**of_source, "offset": offset} for of_source in among]
        if offsets.is_doubtful(self.topic_progress.followed, batch):
            grain = list(self.contract.grain)
            existing_rows = self.warehouse.existing_rows(self.stage.table, among)
            if existing_rows is not None:
                rows = rows.join(existing_rows.select(grain), grain, how="left_anti")
        mark = offsets.mark_of(self.settings.cluster, batch)
        return self.warehouse.insert(rows, self.contract, among, mark, are_few)

    def insert(self, files: Sequence[LandedFile], damaged: dict[str, str]) -> tuple[int, int, int]:
        """Insert the lines that bronze does not hold; return how many were read, skipped and inserted."""
        directory = self.settings.landing_of(self.stage.directory)
        read_files = self.module.read_files
        if not self.stage.reader and not read_files:
            return self._insert(landing.lines(self.warehouse.spark, directory, files, damaged), files)
        if read_files:
            decoded = read_files(self.warehouse.spark, files, damaged, self.settings)
        else:
            from pyspark.sql import functions as F

            landed = self._existing_rows(files)
            if landed is not None:
                landed = landed.where(F.col("cluster") == self.settings.cluster)
            decoded = reader_module(self.stage).read(self.warehouse.spark, directory, files, landed)
        with cached(decoded) as kept:
            return self._insert(kept, files)

    def _insert(self, lines: DataFrame, files: Sequence[LandedFile]) -> tuple[int, int, int]:
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        unwanted = self.module.skipped(lines)
        read, skipped, repeats = self._census(lines, unwanted)
        if skipped:
            lines = lines.where(~unwanted)
        if self.stage.lines_are_events and "_occurrence" not in lines.columns:
            equal = Window.partitionBy("_source", "line", "damage").orderBy(F.lit(0))
            lines = lines.withColumn("_occurrence", F.row_number().over(equal) if repeats else F.lit(1))
        rows = stamped(self.module.parse(lines, self.settings), self.started_at, self.run_id)
        rows = erased.none_of(rows, self.warehouse, self.stage.table)
        grain = list(self.contract.grain)
        if repeats and not self.stage.lines_are_events:
            rows = rows.dropDuplicates(grain)
        existing_rows = self._existing_rows(files)
        if existing_rows is not None:
            rows = rows.join(existing_rows.select(grain), grain, how="left_anti")
        is_small = not self.stage.reader and sum(file.size for file in files) <= few_rows.MOST_PLAIN_BYTES
        are_few = is_small and read - skipped <= few_rows.MOST_ROWS
        are_few = are_few and landing.are_plain(self.settings.landing_of(self.stage.directory), files)
        written = self.warehouse.insert(rows, self.contract, _from(files), are_few=are_few)
        if written and self.module.ordinary_form is not None:
            text = "SELECT form, count(*) AS row_count FROM rows WHERE form IS NOT NULL GROUP BY form"
            mine = {"cluster": self.settings.cluster, "_run_id": self.run_id}
            found = jvmless.query(self.warehouse, self.stage.table, text, mine)
            self.forms = Counter({row["form"]: row["row_count"] for row in found})
        return read, skipped, written

    def _census(self, lines: DataFrame, unwanted: Column) -> tuple[int, int, bool]:
        """Count all lines and skipped lines; tell from 64-bit hashes whether a file may hold a wanted line twice."""
        from pyspark.sql import functions as F

        hashed = F.when(~unwanted, F.xxhash64(*lines.columns)).alias("hash")
        named = self.module.skipped_as(lines)
        counted = (
            lines.groupBy(hashed, F.when(unwanted, named).alias("name"))
            .agg(F.count("*").alias("times"))
            .groupBy("name")
            .agg(
                F.sum("times").alias("times"),
                F.sum(F.when(F.col("hash").isNull(), F.col("times"))).alias("skipped"),
                F.max(F.when(F.col("hash").isNotNull(), F.col("times"))).alias("most"),
            )
            .agg(
                F.sum("times").alias("read"),
                F.sum("skipped").alias("skipped"),
                F.max("most").alias("most"),
                F.slice(F.sort_array(F.collect_list(F.struct("times", "name")), False), 1, MOST_NAMES).alias("names"),
            )
            .collect()[0]
        )
        self.skipped.update({found["name"]: found["times"] for found in counted["names"] if found["name"] is not None})
        return counted["read"] or 0, counted["skipped"] or 0, (counted["most"] or 0) > 1

    def _existing_rows(self, files: Sequence[LandedFile]) -> DataFrame | None:
        """Return the rows of bronze that are from these files; None if there are none."""
        return self.warehouse.existing_rows(self.stage.table, _from(files))


def _from(files: Sequence[LandedFile]) -> list[Range]:
    return _of_sources([file.source for file in files])


def _of_sources(sources: Sequence[str]) -> list[Range]:
    """Return ranges of sources that hold these, and others between them if they are many."""
    if len(sources) <= MOST_NAMES:
        return points("_source", sorted(sources))
    return [{"_source": (min(sources), max(sources))}]
