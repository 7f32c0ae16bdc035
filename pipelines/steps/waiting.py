"""What a landing stage has not read yet: new and changed files, and offsets of topics."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines import moments
from pipelines.errors import AfterlogError, UsageError
from pipelines.kafka import offsets
from pipelines.kafka.cluster import Cluster, TopicSnapshot, connected
from pipelines.kafka.offsets import ReadPlan, TopicProgress
from pipelines.settings import Settings, Topics
from pipelines.sources import landing
from pipelines.sources.landing import LandedFile
from pipelines.sources.logs import files as log_files
from pipelines.stage import Land
from pipelines.steps.modules import reader_module
from pipelines.warehouse import progress
from pipelines.warehouse.progress import Progress
from pipelines.warehouse.tables import Warehouse


def unread(settings: Settings, stage: Land, known: Progress | None) -> dict[str, LandedFile]:
    """Return the feed's files that are new or have changed since they were read, by source."""
    directory = settings.landing_of(stage.directory)
    read = known.files_in(directory) if known else {}
    if stage.reader:
        return reader_module(stage).unread(directory, read)
    listed = landing.listing(directory)
    new = {source: file for source, file in listed.items() if read.get(source) != file}
    if stage.is_rotated:
        new = log_files.brought_along(directory, listed, new, log_files.pattern_of(settings, stage.directory)) | new
    return new


def waiting(
    settings: Settings, stages: Sequence[tuple[Land, Progress | None]], noting: Warehouse | None = None
) -> dict[str, int]:
    """Ask Kafka how many offsets the stages have not read, by table; offsets in gaps count too.

    In the warehouse ``noting``, if there is one, note that topics are read to their ends if none are left.

    Raises AfterlogError: the settings or the cluster have an error, and no stage has offsets to read.
    """
    found: dict[str, int] = {}
    wrong: list[AfterlogError] = []
    asking = [(stage, known, topics) for stage, known in stages if (topics := settings.topics_of(stage.directory))]
    if not asking:
        return found
    with connected(settings) as cluster:
        for stage, known, topics in asking:
            looked_at = moments.now()
            try:
                snapshot, plan = look(cluster, topics, topic_progress_of(settings, known))
            except UsageError as error:  # concerns this feed's topics; those of other feeds may be ok
                wrong.append(error)
                continue
            late = (*offsets.unread(plan.followed, snapshot.logs), *plan.gaps)
            found[stage.table] = sum(span.length for span in late)
            if noting and not late:
                progress.note_read(noting, stage.table, snapshot.whole, looked_at)
            wrong += [snapshot.complaint] if snapshot.complaint else []
    if wrong and not any(found.values()):
        raise wrong[0]
    return found


def topic_progress_of(settings: Settings, known: Progress | None) -> TopicProgress:
    """Return how far the topics of the settings' cluster are read."""
    return known.topics.get(settings.cluster, TopicProgress()) if known else TopicProgress()


def look(cluster: Cluster, topics: Topics, topic_progress: TopicProgress) -> tuple[TopicSnapshot, ReadPlan]:
    """Return a snapshot of the topics in the cluster, and the plan for reading them."""
    snapshot = cluster.snapshot(topics, topic_progress)
    return snapshot, offsets.follow(topic_progress, snapshot.logs, snapshot.present)
