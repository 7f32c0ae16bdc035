"""Counts by time -> SVG that needs no script: a chart of stacked hours, bars that fit an incident, a sparkline.

Charts stretch to the width of the page, so that text is not in them: pages write it beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from markupsafe import Markup, escape

from expectations.owners import named
from expectations.rules import counted
from pipelines.commands.incidents.reading import DAY, HOUR
from pipelines.site.content import Case, History, Series, Timeline

WIDTH, HEIGHT = 1000.0, 100.0
MINUTE = timedelta(minutes=1)
WIDTHS = (*(number * MINUTE for number in (1, 2, 5, 10, 15, 30)), *(number * HOUR for number in (1, 2, 3, 6, 12)), DAY)
MOST_BARS = 96
SPARKS = 40
FEWEST_DRAWN = 2  # bars: a single one shows no course
TICKS = 4


def hours(timeline: Timeline) -> Markup:
    """Return the chart of dead letters by hour, stacked by owner, with a line for each marker."""
    markers = [
        (WIDTH * ((marker.at - timeline.begin) / (timeline.end - timeline.begin)), marker.kind, marker.words)
        for marker in timeline.markers
    ]
    return _stacked(timeline.series, timeline.begin, "Dead letters by hour and owner", "chart", markers)


def hours_of(history: History) -> Markup:
    """Return the chart of one group's or topic's dead letters by hour."""
    return _stacked((Series(None, False, history.hours),), history.hours_begin, "Dead letters by hour", "chart low", ())


def days_of(history: History) -> Markup:
    """Return the chart of one group's or topic's dead letters by day."""
    series = (Series(None, False, history.days),)
    return _stacked(series, history.days_begin, "Dead letters by day", "chart low", (), DAY)


def _stacked(
    series: Sequence[Series],
    begin: datetime,
    label: str,
    kind: str,
    markers: Iterable[tuple[float, str, str]],
    each: timedelta = HOUR,
) -> Markup:
    columns = len(series[0].counts) if series else 1
    totals = [sum(layer.counts[index] for layer in series) for index in range(columns)] if series else [0]
    peak = max(max(totals), 1)
    step = WIDTH / columns
    base = [0] * columns
    drawn = []
    for number, layer in enumerate(series):
        path = []
        for index, count in enumerate(layer.counts):
            if count:
                top = HEIGHT * (1 - (base[index] + count) / peak)
                tall = max(HEIGHT * count / peak, 0.7)
                path.append(f"M{index * step:.1f} {top:.2f}h{step * 0.86:.1f}v{tall:.2f}h-{step * 0.86:.1f}z")
                base[index] += count
        drawn.append(Markup('<path class="s{}" d="{}"/>').format(number, Markup("".join(path))))
    lines = [Markup('<path class="mark {}" d="M{:.1f} 0V100"/>').format(kind, at) for at, kind, _ in markers]
    titles = [
        Markup('<rect class="over" x="{:.1f}" y="0" width="{:.2f}" height="100"><title>{}</title></rect>').format(
            index * step,
            step,
            _bar_title(begin + index * each, each, total, [(layer.name, layer.counts[index]) for layer in series]),
        )
        for index, total in enumerate(totals)
        if total
    ]
    return Markup(
        '<svg class="{}" viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<path class="grid" d="M0 0H1000M0 50H1000"/>{}{}<path class="zero" d="M0 100H1000"/>{}</svg>'
    ).format(
        kind,
        f"{label}: {sum(totals):,} in all, at most {max(totals):,} {'a day' if each == DAY else 'in an hour'}",
        Markup("").join(drawn),
        Markup("").join(lines),
        Markup("").join(titles),
    )


def _bar_title(at: datetime, each: timedelta, total: int, parts: Sequence[tuple[str | None, int]]) -> str:
    shares = ", ".join(f"{named(name)} {count:,}" for name, count in parts if count)
    when = f"{at:%Y-%m-%d}" if each == DAY else f"{at:%Y-%m-%d %H:%M} UTC"
    return f"{when}: {counted(total, 'dead letter')}" + (f" ({shares})" if len(parts) > 1 else "")


def bars(case: Case) -> Markup:
    """Return an incident's records by time against the usual rate, with a scale; nothing if there is one bar only."""
    counts, width = buckets(case, MOST_BARS)
    if len(counts) < FEWEST_DRAWN:
        return Markup("")
    usual = case.usual_an_hour * (width / HOUR) if case.usual_an_hour else 0.0
    peak = max(*counts, usual, 1)
    step = WIDTH / len(counts)
    begin = case.timeline[0][0]
    path = "".join(
        f"M{index * step:.1f} {HEIGHT * (1 - count / peak):.2f}h{step * 0.86:.1f}V100H{index * step:.1f}z"
        for index, count in enumerate(counts)
        if count
    )
    line = f"M0 {HEIGHT * (1 - usual / peak):.2f}H1000"
    drawn = Markup(
        '<svg class="chart low" viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<path class="grid" d="M0 0H1000M0 50H1000"/><path class="s0" d="{}"/>'
        '<path class="zero" d="M0 100H1000"/>{}</svg>'
    ).format(
        f"Records by time. {scale(case)}",
        path,
        Markup('<path class="usual" d="{}"/>').format(line) if usual else "",
    )
    lasted = len(counts) * width
    label = "{:%H:%M}" if lasted <= DAY else "{:%a %d %H:%M}"
    days = [label.format(begin + tick * lasted / TICKS) for tick in range(TICKS)]
    return Markup('<div class="plot"><span class="peak">at most {} in {}</span>{}</div>{}').format(
        f"{max(counts):,}",
        lasting_of(width),
        drawn,
        Markup('<ol class="days" aria-hidden="true">{}</ol>').format(
            Markup("").join(Markup("<li>{}</li>").format(day) for day in days)
        ),
    )


def scale(case: Case) -> str:
    """Return what a bar of an incident's chart stands for, in words; without a chart, when the records came."""
    counts, width = buckets(case, MOST_BARS)
    if not counts:
        return "No time is known."
    if len(counts) < FEWEST_DRAWN:
        return f"All records came within {lasting_of(width)}."
    return f"Each bar is {lasting_of(width)}, with at most {counted(max(counts), 'record')}."


def sparkline(case: Case) -> Markup:
    """Return an incident's records by time as small bars; nothing if there is one bar only."""
    counts, _ = buckets(case, SPARKS)
    if len(counts) < FEWEST_DRAWN:
        return Markup('<span class="spark"></span>')
    peak, step = max(counts), 100 / len(counts)
    path = "".join(
        f"M{index * step:.1f} {24 - max(24 * count / peak, 1.5):.1f}h{step * 0.8:.1f}V24H{index * step:.1f}z"
        for index, count in enumerate(counts)
        if count
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<path d="{}"/></svg>'
    ).format(f"{counted(case.records, 'record')} by time", path)


def buckets(case: Case, most: int) -> tuple[list[int], timedelta]:
    """Return the records of equal spans of time, at most ``most``, from the first to the last, and a span's length.

    A span is the shortest of ``WIDTHS`` that is not shorter than what the timeline counts by, or else of whole days.
    """
    if not case.timeline:
        return [], case.each
    first, last = case.timeline[0][0], case.timeline[-1][0]
    lasted = last - first + case.each
    days = -(-lasted // (most * DAY)) * DAY
    width = next((span for span in WIDTHS if span >= case.each and lasted <= most * span), days)
    counts = [0] * -(-lasted // width)
    for at, count in case.timeline:
        counts[(at - first) // width] += count
    return counts, width


def lasting_of(span: timedelta) -> str:
    """Return a span of time in its greatest unit, such as "5 minutes" and "an hour"."""
    for unit, length, words in (("day", DAY, "a day"), ("hour", HOUR, "an hour"), ("minute", MINUTE, "a minute")):
        if span % length == timedelta(0):
            return words if span == length else counted(span // length, unit)
    raise AssertionError(span)


def meter(share: float) -> Markup:
    """Return a bar for a share from 0 to 1."""
    return Markup(
        '<svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect width="{}" height="6" rx="1"/></svg>'
    ).format(escape(f"{max(1.0, 100 * share):.1f}"))
