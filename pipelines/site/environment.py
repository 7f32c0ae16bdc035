"""What all templates of pages know: how values are shown, and the constants and functions of the site."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from expectations.rules import counted, plural
from expectations.text import visible
from expectations.verdict import share
from pipelines import scratch
from pipelines.commands.findings import SILENT, URGENT
from pipelines.commands.incidents.front import clock
from pipelines.commands.incidents.story import quoted
from pipelines.run.newest import lasting, moment
from pipelines.settings.teams import NO_TEAM
from pipelines.site import addresses, charts, findings
from pipelines.site.content import SETTLED, SHOWN_DAYS, Light
from pipelines.site.quality import bars, unread_of
from pipelines.text import elided, iso, size_of
from pipelines.topology import drawing

ASSETS = Path(__file__).with_name("assets")
TEMPLATES = Path(__file__).with_name("templates")
DRAWING = Path(drawing.__file__).parent
DATA_DOCS = "data_docs"
MOST_ON_FRONT = 12  # incidents, applications and rows of other tables
MOST_COORDINATES = 5
MOST_REVISIONS = 20  # with their differences

LONGEST_WORD = 20  # characters that stay together
LONGEST_NAME = 40  # columns of a name where its whole would make a row tall

_SIGNS = re.compile(r"(?<=[._/])(?=\w)")
_WORDS = re.compile(r"(\s+)")


@cache
def version() -> str:
    """Return a hash of what makes pages from content: a page of another version is made again."""
    digest = hashlib.sha256()
    for directory in (TEMPLATES, ASSETS, Path(__file__).parent, DRAWING, DRAWING.parent):
        for file in sorted(path for path in directory.iterdir() if path.is_file()):
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def jinja_environment() -> Environment:
    """Return an environment whose templates have the filters and names that all pages share."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
        bytecode_cache=FileSystemBytecodeCache(scratch.directory("templates")),  # a report has environments of its own
    )
    environment.filters |= {
        "moment": moment,
        "lasting": lasting,
        "size": size_of,
        "share": share,
        "time": _time,
        "timed": _timed,
        "milliseconds": _milliseconds,
        "seconds": _seconds,
        "span": _span,
        "cut": _cut,
        "elided": elided,
        "lines": _lines,
        "quoted": quoted,
    }
    nobody: frozenset[str] = frozenset()
    environment.globals |= {
        **dict.fromkeys(
            ("groups", "topics", "applications", "known_incidents", "fronts", "teams", "unreadable"), nobody
        ),
        "addresses": addresses,
        "bars": bars,
        "charts": charts,
        "counted": counted,
        "explained": findings.explained,
        "sentence": findings.sentence,
        "stale": SILENT,
        "plural": plural,
        "settled": SETTLED,
        "data_docs": f"{DATA_DOCS}/index.html",
        "days": _days,
        "months": _months,
        "no_team": NO_TEAM,
        "most_coordinates": MOST_COORDINATES,
        "most_on_front": MOST_ON_FRONT,
        "most_revisions": MOST_REVISIONS,
        "unread": unread_of,
        "urgent": URGENT,
        "version": version(),
    }
    return environment


def _shown(value: Any) -> Any:
    """Return text with escapes for what cannot be seen, such as control and bidirectional characters.

    Markup from a macro of the template stays unchanged: each value in it went through this function already.
    """
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _lines(text: str) -> Markup:
    """Return a message of several lines, in which what cannot be seen else is shown as escapes."""
    return Markup("\n").join(visible(line) for line in text.split("\n"))


def _cut(text: str) -> Markup:
    """Return text whose long names lack their middle, which the pointer shows; others break behind signs."""

    def shown(name: str) -> Markup:
        short = elided(name, LONGEST_NAME)
        if short != name:
            return Markup('<span title="{}">{}</span>').format(name, short)
        return Markup("<wbr>").join(_SIGNS.split(name)) if len(name) > LONGEST_WORD else escape(name)

    return Markup("").join(shown(word) for word in _WORDS.split(visible(text)))


def _time(at: datetime) -> Markup:
    """Return a time in UTC; the script adds the local time and the age as its title."""
    return Markup('<time datetime="{}">{:%Y-%m-%d %H:%M} UTC</time>').format(iso(at), at.astimezone(UTC))


def _timed(light: Light, now: datetime) -> Markup:
    """Return the sentence of a light, in which the time of the newest dead letter is marked as one."""
    sentence = visible(light.sentence)
    if light.newest_at is None:
        return escape(sentence)
    before, shown_time, after = sentence.partition(clock(light.newest_at, now))
    return Markup('{}<time datetime="{}">{}</time>{}').format(before, iso(light.newest_at), shown_time, after)


def _milliseconds(milliseconds: float) -> str:
    """Return milliseconds with as many digits as tell something."""
    return f"{milliseconds:,.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"


def _seconds(seconds: float) -> str:
    """Return seconds, with a digit more than whole ones if they are few."""
    return lasting(timedelta(seconds=seconds)) if seconds >= 10 else f"{seconds:.1f} seconds"


def _span(seconds: float) -> str:
    """Return a span of seconds in words, with its direction before or after."""
    return f"{lasting(timedelta(seconds=abs(seconds)))} {'before' if seconds >= 0 else 'after'}"


def _days(begin: datetime) -> list[tuple[str, str]]:
    """Return the labels of the seven days of a chart: day and hour."""
    return [(f"{at:%a %d}", f"{at:%H:%M}") for number in range(7) for at in [begin + number * timedelta(days=1)]]


def _months(begin: datetime) -> list[str]:
    """Return the labels of the thirds of a chart of days."""
    return [f"{begin + number * timedelta(days=SHOWN_DAYS // 3):%d %b %Y}" for number in range(3)]
