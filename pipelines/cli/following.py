"""`afterlog run --follow`: the display, and what works beside it.

It is not in ``pipelines/run``, which cannot import the display, metrics and alerts: they stand above it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines import otlp
from pipelines.cli.options import TableFormat
from pipelines.cli.output import say, say_about
from pipelines.errors import UsageError
from pipelines.run import sessions
from pipelines.settings import Settings
from pipelines.stage import Stage
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pipelines.metrics.exposition import Meter
    from pipelines.run.beside import Beside
    from pipelines.run.follow import Cycle

    AfterCycle = Callable[[Cycle, Sequence[StageRun]], None]


def follow(
    settings: Settings,
    chosen: Sequence[Stage],
    every_seconds: float,
    health: Path | None,
    format: TableFormat,
    metrics_address: tuple[str, int] | None,
) -> int:
    """Follow what is new until a signal; return the exit code.

    With ``--format json`` each cycle that read something is a line of standard output.
    """
    from pipelines.commands import display
    from pipelines.run.follow import Follower, health_file
    from pipelines.run.stop import Stop

    def show(done: Sequence[StageRun]) -> None:
        if format == "json":
            entries = [stage_run.as_json() for stage_run in done if stage_run.status != "idle"]
            print(json.dumps({"run_id": done[0].run_id, "tables": entries}), flush=True)

    # JSON on the terminal would be written amid the line.
    live = False if format == "json" and sys.stdout.isatty() else None
    gates = sessions.need_gates(chosen)
    with contextlib.ExitStack() as kept:
        meter = _meter(settings, metrics_address, kept)
        stop = kept.enter_context(Stop())
        watch = kept.enter_context(display.Display("Looking for what is new.", quiet=True, log=True, live=live))
        return Follower(
            settings,
            chosen,
            every_seconds=every_seconds,
            health=health.expanduser().absolute() if health else health_file(Warehouse(settings)),
            sessions=lambda given: sessions.session(given, watch, gates=gates, short_lived=False),
            stop=stop,
            say=say,
            report=watch.ended,
            show=show,
            watch=watch,
            afterwards=_after_cycles(settings, chosen, meter, kept),
        ).follow()


def _meter(settings: Settings, address: tuple[str, int] | None, kept: contextlib.ExitStack) -> Meter | None:
    """Return what reads metrics, and serve them at the address if there is one; None if nobody wants metrics."""
    is_asked = address is not None or settings.metrics.file is not None
    if not is_asked and not otlp.wanted("metrics"):
        return None
    from pipelines.metrics.exposition import Meter

    try:
        meter = Meter(settings)
    except UsageError as error:
        if is_asked:
            raise
        say(f"Metrics are not sent to OpenTelemetry. {error}")
        return None
    if address is not None:
        port = kept.enter_context(meter.served(*address))
        say(f"Metrics are at http://{address[0]}:{port}/metrics.")
    return meter


def _after_cycles(
    settings: Settings, chosen: Sequence[Stage], meter: Meter | None, kept: contextlib.ExitStack
) -> AfterCycle:
    """Return what is done after each cycle: metrics, traces, settings of clusters and alerts, if anyone wants them.

    It ends with ``kept``.
    """
    calls: list[AfterCycle] = []
    if meter is not None:
        calls += [meter.count, _beside(meter.refresh, say, kept)]
    if otlp.wanted("traces"):
        from pipelines.run import traces

        of_cycles = traces.Traces(traces.about(settings.cluster, chosen))
        kept.enter_context(of_cycles.heard())
        calls += [of_cycles.cycle, _beside(of_cycles.tell, say, kept)]
    for own in settings.of_clusters():  # each by itself: one that is away keeps no other waiting
        if settings.collect.every_seconds is not None and own.kafka.bootstrap_servers:
            from pipelines.collect.landing import Collector

            collector = Collector(own, settings.collect.every_seconds)
            calls.append(_beside(collector.ask_if_due, say_about(settings, own.cluster), kept))
    if settings.alerts.route:
        calls.append(_alerts(settings, kept))

    def call_each(cycle: Cycle, done: Sequence[StageRun]) -> None:
        for call in calls:
            call(cycle, done)

    return call_each


def _alerts(settings: Settings, kept: contextlib.ExitStack) -> AfterCycle:
    """Return what sends alerts; it sends no more once the process is about to end."""
    from pipelines.alerts import sender

    def send() -> Sequence[str]:
        outcomes = [sender.send(own, stopping=sending.left.is_set) for own in settings.of_clusters()]
        return [*dict.fromkeys(problem for outcome in outcomes for problem in outcome.problems)]

    sending = _beside(send, say, kept)
    return sending


def _beside(work: Callable[[], Sequence[str]], say: Callable[[str], None], kept: contextlib.ExitStack) -> Beside:
    """Return work in a thread of its own, which ends with ``kept``."""
    from pipelines.run.beside import Beside

    work_beside = Beside(work, say)
    kept.callback(work_beside.close)
    return work_beside
