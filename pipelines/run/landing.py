"""New lines of a feed, cluster by cluster -> a Land stage's table, and the errors that left topics unread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pipelines import moments
from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError
from pipelines.settings import Settings
from pipelines.stage import Land, Stage
from pipelines.steps.land import Landed, land
from pipelines.steps.watch import Watch
from pipelines.warehouse import quality
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse


@dataclass
class Left:
    """What a run left unread: the first error of each cluster, and the errors of clusters that do not answer.

    Those of ``silent`` clusters are not noted.
    """

    silent: frozenset[str]
    errors: dict[str, AfterlogError] = field(default_factory=dict)
    away: dict[str, AfterlogError] = field(default_factory=dict)


def reads_topics(settings: Settings, stage: Stage) -> bool:
    """Tell whether a stage reads topics."""
    return isinstance(stage, Land) and settings.topics_of(stage.directory) is not None


def land_cluster(
    warehouse: Warehouse,
    stage: Land,
    run_id: str,
    left: Left,
    stopping: Callable[[], bool],
    is_one_of_several: bool,
    watch: Watch,
) -> list[StageRun]:
    """Land what is new of a feed in one cluster.

    An error of one of several keeps no other one from landing, and one that does not answer is asked once in a run.
    """
    cluster = warehouse.cluster if is_one_of_several else None
    away = left.away.get(warehouse.cluster) if reads_topics(warehouse.settings, stage) else None
    if away is not None:
        warehouse = replace(warehouse, settings=warehouse.settings.files_only())
    try:
        landed = land(warehouse, stage, run_id, moments.now(), watch)
    except (EnvironmentLacking, UsageError) as error:
        if not is_one_of_several or stopping():
            raise
        landed = Landed(None, error)
    done = [replace(landed.stage_run, cluster=cluster)] if landed.stage_run else []
    reason = landed.left or away
    if reason is None or stopping():
        return done
    if landed.is_away and is_one_of_several:
        left.away[warehouse.cluster] = reason
    at = moments.now()
    failed = StageRun(run_id, stage.table, "failed", at, at, message=str(reason), cluster=cluster)
    if warehouse.cluster not in left.silent:
        quality.note(warehouse, failed)
    left.errors.setdefault(warehouse.cluster, reason)
    return [*done, failed]
