"""Rows of quality.stage_runs -> a trace for each run: a span of the run, and below it one for each row."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pipelines import moments, otlp
from pipelines.errors import AfterlogError, readable
from pipelines.run import interrupt
from pipelines.stage import Stage
from pipelines.text import utf8
from pipelines.warehouse import quality
from pipelines.warehouse.quality import Row, StageRun

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Span, Tracer

    from pipelines.run.follow import Cycle

MOST_WAITING = 100  # traces that a process which follows keeps while the collector is away
RUN = "afterlog run"

_FAILED = ("broken", "failed")
_TIMES = ("started_at", "finished_at", "seconds")  # a span has its own


@dataclass(eq=False)
class Trace:
    """What a command or a cycle did; ``rows`` are those that quality.stage_runs got meanwhile."""

    name: str
    about: dict[str, Any]
    started_at: datetime = field(default_factory=moments.now)
    ended_at: datetime | None = None
    rows: list[Row] = field(default_factory=list)
    done: Sequence[StageRun] = ()
    outcome: str | None = None
    error: tuple[str, str] | None = None  # its type and a sentence
    spans: list[ReadableSpan] | None = None  # once they are made

    def ends(self, error: BaseException | None) -> None:
        """Take how the command ended; without an error it ended with exit code 0."""
        self.ended_at = moments.now()
        code = getattr(error, "exit_code", 0)
        if isinstance(error, KeyboardInterrupt):
            code, self.outcome = interrupt.EXIT_CODE, "interrupted"
        elif isinstance(error, Exception) and (isinstance(error, AfterlogError) or not hasattr(error, "exit_code")):
            known = readable(error)
            code, self.outcome, self.error = known.exit_code, "failed", (type(known).__name__, str(known))
        elif code in (0, interrupt.EXIT_CODE):
            self.outcome = "interrupted" if code else self.outcome or _outcome(self.done)
        else:
            self.outcome = "broken"
            self.error = self.outcome, _why(self.done) or f"The command ended with exit code {code}."
        self.about["process.exit.code"] = code


def about(cluster: str, stages: Sequence[Stage]) -> dict[str, Any]:
    """Return the attributes of a run of stages."""
    return {"afterlog.cluster": cluster, "afterlog.feeds": sorted({stage.feed for stage in stages})}


@contextlib.contextmanager
def traced(name: str, attributes: Mapping[str, Any], say: Callable[[str], None]) -> Iterator[Trace]:
    """Yield the trace of a command, and tell it when the context ends; what goes wrong with that is said."""
    trace = Trace(name, dict(attributes))
    if not otlp.wanted("traces"):
        yield trace
        return
    ended: BaseException | None = None
    try:
        with quality.heard(trace.rows.extend):
            yield trace
    except BaseException as error:
        ended = error
        raise
    finally:
        trace.ends(ended)
        traces = Traces(attributes, takes_parent=True)
        traces.waiting.append(trace)
        for sentence in traces.tell():
            say(sentence)


class Traces:
    """Traces that are told one after the other; those that cannot be told wait."""

    def __init__(self, attributes: Mapping[str, Any], *, takes_parent: bool = False) -> None:
        """Take the attributes of cycles, and whether a trace continues that of the environment's ``TRACEPARENT``."""
        self._about = attributes
        self.waiting: deque[Trace] = deque(maxlen=MOST_WAITING)
        self._takes_parent = takes_parent
        self._sender = otlp.Sender("traces")
        self._spans: Callable[[Trace], list[ReadableSpan]] | None = None
        self._rows: list[Row] = []
        self._failure: str | None = None

    def heard(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the rows of cycles are heard."""
        return quality.heard(self._rows.extend)

    def cycle(self, cycle: Cycle, done: Sequence[StageRun]) -> None:
        """Take a cycle that ended; one that read nothing, and one that failed as that before, has no trace."""
        rows, before = [*self._rows], self._failure
        self._rows.clear()
        self._failure = cycle.message if cycle.result == "failed" else None
        if not rows and (cycle.result != "failed" or self._failure == before):
            return
        began_at, ended_at = map(datetime.fromisoformat, (cycle.began_at, cycle.ended_at))
        trace = Trace(RUN, dict(self._about), began_at, ended_at, rows, done, cycle.result)
        if cycle.result in _FAILED:
            trace.error = cycle.result, cycle.message or _why(done) or "A gate broke."
        self.waiting.append(trace)

    def tell(self) -> Sequence[str]:
        """Send the traces that wait; return what went wrong."""
        telling = list(self.waiting)
        if not telling:
            return ()
        problem = self._sender.send(lambda: [span for trace in telling for span in self._made(trace)])
        if problem is not None:
            return (problem,)
        for trace in telling:
            with contextlib.suppress(ValueError):  # more came meanwhile than are kept
                self.waiting.remove(trace)
        return ()

    def _made(self, trace: Trace) -> list[ReadableSpan]:
        self._spans = self._spans or _recorder(self._takes_parent)
        trace.spans = self._spans(trace) if trace.spans is None else trace.spans
        return trace.spans


def _outcome(done: Sequence[StageRun]) -> str:
    return "read" if any(stage_run.status != "idle" for stage_run in done) else "idle"


def _why(done: Sequence[StageRun]) -> str | None:
    """Return the first sentence about a table that did not pass."""
    messages = (
        f"{stage_run.table}: {stage_run.message}"
        for stage_run in done
        if stage_run.status not in ("passed", "idle") and stage_run.message
    )
    return next(messages, None)


def _recorder(takes_parent: bool) -> Callable[[Trace], list[ReadableSpan]]:
    """Return what makes the spans of a trace, as the environment's sampler and limits say."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=otlp.resource(), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer(otlp.SCOPE, version("afterlog"))
    given = {name: os.environ.get(name.upper(), "") for name in ("traceparent", "tracestate")}
    parent = TraceContextTextMapPropagator().extract(given if takes_parent else {})

    def spans(trace: Trace) -> list[ReadableSpan]:
        kept.clear()
        _record(tracer, trace, parent)
        return list(kept.get_finished_spans())

    return spans


def _record(tracer: Tracer, trace: Trace, parent: Context) -> None:
    """Make the spans of a trace, and a trace for each earlier run that ended before it reported its rows."""
    runs: defaultdict[str | None, list[Row]] = defaultdict(list)
    for row in trace.rows:
        runs[None if _at(row, "started_at") >= trace.started_at else row["run_id"]].append(row)
    own = runs.pop(None, [])
    for run_id, rows in runs.items():
        begun = {"afterlog.cluster": rows[0]["cluster"], "afterlog.run_id": run_id, "afterlog.outcome": "interrupted"}
        _run(tracer, RUN, begun, rows, min(_at(row, "started_at") for row in rows))
    ids = [*(stage_run.run_id for stage_run in trace.done if stage_run.run_id), *(row["run_id"] for row in own)]
    known = {"afterlog.run_id": ids[-1]} if ids else {}
    attributes = {**trace.about, **known, "afterlog.outcome": trace.outcome}
    _run(tracer, trace.name, attributes, own, trace.started_at, trace.ended_at, trace.error, parent)


def _run(
    tracer: Tracer,
    name: str,
    attributes: Mapping[str, Any],
    rows: Sequence[Row],
    started_at: datetime,
    ended_at: datetime | None = None,
    error: tuple[str, str] | None = None,
    parent: Context | None = None,
) -> None:
    """Make the span of a run, and one below it for each row; a run without an end ended with its last row."""
    from opentelemetry.trace import set_span_in_context

    root = tracer.start_span(name, context=parent, attributes=_attributes(attributes), start_time=_nanos(started_at))
    below = set_span_in_context(root)
    for row in rows:
        found = _attributes({f"afterlog.{key}": value for key, value in row.items() if key not in _TIMES})
        at = _nanos(_at(row, "started_at"))
        span = tracer.start_span(row["table"], context=below, attributes=found, start_time=at)
        if row["status"] in _FAILED:
            _fails(span, row["status"], row["message"])
        span.end(_nanos(_at(row, "finished_at")))
    if error is not None:
        _fails(root, *error)
    ends = [ended_at] if ended_at is not None else []
    root.end(_nanos(max([*ends, *(_at(row, "finished_at") for row in rows)])))


def _fails(span: Span, kind: str, sentence: str | None) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, utf8(sentence or "")))


def _attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: utf8(value) if isinstance(value, str) else value for name, value in values.items() if value is not None
    }


def _at(row: Row, column: str) -> datetime:
    return datetime.fromisoformat(row[column])


def _nanos(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
