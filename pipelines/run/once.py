"""Run stages once, under the writer's lock, with a session only if there is something to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipelines.errors import AfterlogError
from pipelines.jvm import small
from pipelines.jvm.session import SHORT_WORK
from pipelines.run import freshness, idleness, ids, runner, sessions
from pipelines.settings import Settings
from pipelines.stage import Stage
from pipelines.steps.held import Acceptance
from pipelines.steps.watch import Watch
from pipelines.stores import lock
from pipelines.text import size_of
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse


def run_once(
    settings: Settings, chosen: Sequence[Stage], accepted: Acceptance, watch: Watch, say: Callable[[str], None]
) -> tuple[list[StageRun], AfterlogError | None]:
    """Run stages on what is new; return what each did, and why topics are left unread where all stages were run."""
    done: list[StageRun] = []

    def take(stage_run: StageRun) -> None:
        done.append(stage_run)
        watch.ended(stage_run)

    warehouse = Warehouse(settings)
    with lock.writer(settings, "afterlog run"):
        if warehouse.opens_tables:
            for remark in accepted.remarks(warehouse):
                say(remark)
        if idleness.idle(warehouse, chosen, accepted):
            done = idleness.at_rest(warehouse, chosen, ids.new_run_id())
            for stage_run in done:
                watch.ended(stage_run)
            return done, None
        waiting = freshness.unread_bytes(warehouse, chosen)
        short_lived = waiting is not None and waiting < SHORT_WORK
        watch.says(f"Starting Spark: {size_of(waiting)} wait." if waiting else sessions.STARTING)
        small.hang_up()  # the session's own JVM will ask from here on
        with sessions.session(settings, watch, sessions.need_gates(chosen), short_lived) as spark:
            if not warehouse.opens_tables:
                for remark in accepted.remarks(Warehouse(settings, spark)):
                    say(remark)
            try:
                runner.run(Warehouse(settings, spark), chosen, take, accepted=accepted, watch=watch)
            except AfterlogError as error:
                if {stage.table for stage in chosen} != {stage_run.table for stage_run in done}:
                    raise
                return done, error  # what all stages did is told first
    return done, None
