"""Content -> pages: HTML that loads nothing from elsewhere, runs only our own script, and shows every name as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from markupsafe import Markup

from expectations.owners import named
from expectations.rules import counted
from expectations.text import visible
from pipelines.commands.incidents.reading import INCIDENTS
from pipelines.incidents.blast import Blast
from pipelines.site import addresses
from pipelines.site.content import ALONE, Application, Case, Content, Siblings, Subject
from pipelines.site.environment import ASSETS, jinja_environment, version
from pipelines.site.parts import Parts
from pipelines.site.quality import Pipeline
from pipelines.text import elided, iso
from pipelines.topology import drawing
from pipelines.topology.diff import diff
from pipelines.topology.model import NoTopology, Topology

CSS, SCRIPT, ICON = "assets/site.css", "assets/site.js", "assets/icon.svg"
MOST_AT_FIRST = 50  # rows of a table that the script pages through
MOST_SHAPES = 400  # nodes of a topology that is drawn on a page
MOST_OF_A_DIFF = 200  # of a difference


_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


@dataclass(frozen=True)
class Page:
    """A page: its path, what it depends on (None: on the moment, so that it is always made), and how it is made."""

    path: str
    about: Any
    text: Callable[[], str]


def pages(content: Content, directory: Path | None = None, siblings: Siblings = ALONE) -> Iterator[Page]:
    """Return all pages of a site; each is made when its text is asked for, with what ``directory`` has."""
    site = _Site(content, directory)
    yield Page(CSS, "", styles)
    yield Page(ICON, "", lambda: (ASSETS / "icon.svg").read_text(encoding="utf-8"))
    yield Page(SCRIPT, "", lambda: (ASSETS / "site.js").read_text(encoding="utf-8"))
    yield site.page(
        addresses.FRONT,
        "front.html.j2",
        None,
        content=content,
        rows=site.incident_rows,
        team=None,
        others=siblings.others,
    )
    for team, front in content.fronts.items():
        yield site.page(
            addresses.team(team), "front.html.j2", None, content=front, rows=site.incident_rows, team=team, others=()
        )
    fronts = {path for path, _ in site.fronts.values()}
    for file in sorted(directory.glob(f"{addresses.TEAM}*.html")) if directory else ():
        if file.name not in fronts:
            yield site.page(file.name, "no_team.html.j2", "")
    yield Page(addresses.QUALITY, None, lambda: quality_page(content.pipeline, siblings.above))
    yield site.page(addresses.DELIVERY, "delivery.html.j2", [content.delivery, content.findings], content=content)
    past = content.past
    listed = [site.incident_rows, past.age, len(past.incidents)]
    yield site.page(addresses.INCIDENTS, "incidents.html.j2", listed, finder=site.incidents(), past=past)
    yield site.page("places.html", "places.html.j2", site.subject_rows, finders=site.subjects())
    for case in content.incidents:
        others = site.alike[case.fingerprint][:50]
        yield site.page(
            addresses.incident(case.incident_id), "incident.html.j2", [case, others], "../", case=case, others=others
        )
    for ended in past.incidents:
        yield site.page(addresses.incident(ended), "past.html.j2", [ended, past.age], "../", name=ended, age=past.age)
    for gone, into in content.merged.items():  # its page is there from before, and its address may be in a chat
        path = addresses.incident(gone)
        yield site.page(path, "merged.html.j2", [into, into in site.cases], "../", name=gone, into=into)
    for topic in content.topics:
        incidents = site.incidents_of(topic)
        values = {"subject": topic, "kind": "topic", "incidents": incidents, "application": None}
        yield site.page(addresses.topic(topic.name), "subject.html.j2", [topic, incidents], "../", **values)
    applications: dict[str | None, Application] = {
        application.name: application for application in content.applications
    }
    groups = {group.name: group for group in content.groups}
    for name in dict.fromkeys((*groups, *applications)):  # a group's page and its application's share parts
        group, application = groups.get(name), applications.get(name)
        if group is not None:
            incidents = site.incidents_of(group)
            about = [group, incidents, _about(application)]
            values = {"subject": group, "kind": "group", "incidents": incidents, "application": application}
            yield site.page(addresses.group(name), "subject.html.j2", about, "../", **values)
        if application is not None:
            incidents = site.about[application.name]
            about = [_about(application), incidents, group and [group.records, group.without_payload, group.history]]
            values = {"application": application, "subject": group, "incidents": incidents}
            yield site.page(addresses.application(application.name), "application.html.j2", about, "../", **values)


def quality_page(report: Pipeline, above: str = "") -> str:
    """Return the page on data quality, which needs the state of the pipeline only.

    ``above`` leads to the directory with Data Docs, which are of all clusters.
    """
    environment = jinja_environment()
    template = environment.get_template("quality.html.j2")
    about = {"path": addresses.QUALITY, "cluster": report.cluster, "unreadable": report.unreadable}
    return template.render(root="", report=report, above=above, **about)


def styles() -> str:
    """Return the style sheet, with the styles of pictures of topologies."""
    style = _STYLE.search(drawing.svg(Topology(), ""))
    return (ASSETS / "site.css").read_text(encoding="utf-8") + (style.group(1) if style else "") + "\n"


class _Site:
    """What pages of one content share."""

    def __init__(self, content: Content, directory: Path | None) -> None:
        self.content = content
        self.parts = Parts(version(), directory)
        self.environment = jinja_environment()
        self.cases = {case.incident_id: case for case in content.incidents}
        self.fronts = {
            name: (
                addresses.team(name),
                None if INCIDENTS in content.unreadable else sum(case.is_loud for case in front.incidents),
            )
            for name, front in content.fronts.items()
        }
        self.environment.globals |= {
            "cluster": content.cluster,
            "unreadable": content.unreadable,
            "fronts": self.fronts,
            "teams": self.teams,
            "named": named,
            "groups": frozenset(group.name for group in content.groups),
            "topics": frozenset(topic.name for topic in content.topics),
            "applications": frozenset(application.name for application in content.applications),
            "known_incidents": frozenset(self.cases),
            "difference": self.difference,
            "picture": self.picture,
            "reached": self.reached,
        }

    def page(self, path: str, template: str, about: Any, root: str = "", **values: Any) -> Page:
        """Return a page that a template makes; ``root`` leads from the page to the front's directory."""

        def text() -> str:
            return self.environment.get_template(template).render(root=root, path=path, **values)

        damaged = [self.content.unreadable] if self.content.unreadable else []
        return Page(path, None if about is None else [self.content.cluster, about, *damaged], text)

    def picture(self, application: Application, path: str, root: str) -> Markup:
        """Return the picture of an application's topology; it is empty if none is known, or too large for a page."""

        def drawn() -> Markup:
            try:
                topology = Topology.parsed(application.description or "")
            except NoTopology:
                return Markup("")
            return _drawn(topology, f"Topology of {application.name}", self.link(root), None)

        links = [self.link(root)(topic) for topic in sorted({*application.reads, *application.writes})]
        return self.parts.part(path, ["picture", application.name, application.description, links], drawn)

    def difference(self, application: Application, index: int, path: str) -> Markup:
        """Return the lines of the difference between a revision, by its index, and the one before it."""
        after, before = application.revisions[index : index + 2]

        def make() -> Markup:
            try:
                sides = [Topology.parsed(revision.description or "") for revision in (before, after)]
            except NoTopology:
                return Markup("What has landed cannot be compared.")
            return _marked(diff(*sides).as_text().splitlines())

        about = ["difference", before.topology_hash, after.topology_hash]
        if None in about:
            return make()
        return self.parts.part(path, about, make)

    def reached(self, blast: Blast, path: str, root: str) -> Markup:
        """Return the picture of what a topic reaches, with the topic marked; it is empty if it reaches nothing."""
        if not blast.counted:
            return Markup("")
        applications: frozenset[str] = self.environment.globals["applications"]  # type: ignore[assignment]
        parts = {
            blast.part_name(group): f"{root}{addresses.application(group.group_id)}"
            for group in blast.counted
            if group.group_id in applications
        }
        topology = blast.topology()
        link = self.link(root)
        links = [link(topic) for topic in sorted({topic for node in topology.nodes for topic in node.topics})]
        return self.parts.part(
            path,
            ["reached", blast.topic, topology.wire(), links, parts],
            lambda: _drawn(topology, f"What {blast.topic} reaches", link, blast.topic, parts.get),
        )

    def link(self, root: str) -> Callable[[str], str | None]:
        """Return a function that returns the address of a topic's page, None if it has none."""
        topics: frozenset[str | None] = self.environment.globals["topics"]  # type: ignore[assignment]
        return lambda topic: f"{root}{addresses.topic(topic)}" if topic in topics else None

    @cached_property
    def teams(self) -> Mapping[str, list[str]]:
        """The teams of each incident; empty without teams."""
        return self._teams_of("incidents", "incident_id")

    def _teams_of(self, kind: str, name: str = "name") -> dict[Any, list[str]]:
        """Return the teams of each thing of a kind, by its name."""
        teams: dict[Any, list[str]] = {}
        for team, front in self.content.fronts.items():
            for subject in getattr(front, kind):
                teams.setdefault(getattr(subject, name), []).append(team)
        return teams

    def _team_cells(self, teams: Mapping[Any, Sequence[str]], name: str | None) -> list[str]:
        """Return the cell of a row that tells the teams of something; none without teams."""
        return [", ".join(map(visible, teams[name]))] if self.fronts else []

    @cached_property
    def incident_rows(self) -> list[list[Any]]:
        """The rows of the table of all incidents, the most urgent first."""
        return [
            [
                [case.incident_id, addresses.incident(case.incident_id)],
                case.severity,
                case.state_in_words,
                case.chip,
                named(case.group, case.owner),
                visible(case.topic) if case.topic else "unknown",
                case.records,
                *(None if name in case.untimed else iso(getattr(case, name)) for name in ("first_at", "last_at")),
                elided(case.error or case.disposition or "unknown", 160),
                *self._team_cells(self.teams, case.incident_id),
            ]
            for case in self.content.incidents
        ]

    def incidents(self) -> Finder:
        """Return the table of the incidents that pages tell of."""
        kinds = "link chip text text text text number time time text" + (" text" if self.fronts else "")
        names = "Incident,Severity,State,Verdict,Owner,Source topic,Records,Since (UTC),Last (UTC),Error"
        names += ",Team" if self.fronts else ""
        which = "The latest" if self.content.past.incidents else "All"
        caption = f"{which} incidents, the most urgent first"
        return Finder("incidents", caption, names.split(","), kinds.split(), self.incident_rows)

    @cached_property
    def subject_rows(self) -> list[list[list[Any]]]:
        """The rows of the tables of owners, topics and applications."""
        opened = {case.incident_id for case in self.content.incidents if case.is_loud}
        of_groups, of_topics, of_applications = map(self._teams_of, ("groups", "topics", "applications"))

        def row(subject: Subject, path: str, name: str, teams: Mapping[Any, Sequence[str]]) -> list[Any]:
            counts = [subject.records, sum(name in opened for name in subject.incidents), len(subject.incidents)]
            return [[name, path], *counts, *self._team_cells(teams, subject.name)]

        return [
            [row(group, addresses.group(group.name), named(group.name), of_groups) for group in self.content.groups],
            [
                row(
                    topic,
                    addresses.topic(topic.name),
                    visible(topic.name) if topic.name else "unknown topic",
                    of_topics,
                )
                for topic in self.content.topics
            ],
            [
                [
                    [visible(application.name), addresses.application(application.name)],
                    application.condition,
                    ", ".join(application.reasons),
                    application.revision,
                    iso(application.last_seen_at) if application.last_seen_at else None,
                    visible(application.sentence),
                    *self._team_cells(of_applications, application.name),
                ]
                for application in self.content.applications
            ],
        ]

    def subjects(self) -> list[Finder]:
        """Return the tables of owners, topics and applications."""
        groups, topics, applications = self.subject_rows
        team, text = (["Team"], ["text"]) if self.fronts else ([], [])
        counts = ["link", "number", "number", "number", *text]
        names = ["Dead letters", "Open incidents", "Incidents", *team]
        headers = ["Application", "Health", "Needs a look", "Revision", "Last seen (UTC)", "In words", *team]
        return [
            Finder("groups", "Owners of dead letters", ["Owner", *names], counts, groups, True),
            Finder("topics", "Topics", ["Topic", "Dead letters from it or in it", *names[1:]], counts, topics, True),
            Finder(
                "applications",
                "Applications",
                headers,
                ["link", "text", "text", "number", "time", "text", *text],
                applications,
                True,
            ),
        ]

    @cached_property
    def about(self) -> Mapping[str, list[Any]]:
        """For each application the incidents of its group, and of topics that it reads, in a few words."""
        known: dict[str, list[Any]] = {application.name: [] for application in self.content.applications}
        readers: dict[str, list[str]] = {}
        for application in self.content.applications:
            for topic in application.reads:
                readers.setdefault(topic, []).append(application.name)
        for case in self.content.incidents:
            for name in dict.fromkeys((case.group or "", *readers.get(case.topic or "", ()))):
                if name in known:
                    known[name].append(_brief(case))
        return known

    @cached_property
    def alike(self) -> Mapping[str, list[str]]:
        """The incidents of each fingerprint."""
        by_fingerprint: dict[str, list[str]] = {}
        for case in self.content.incidents:
            by_fingerprint.setdefault(case.fingerprint, []).append(case.incident_id)
        return by_fingerprint

    def incidents_of(self, subject: Subject) -> list[Any]:
        """Return the incidents of an owner or topic, in a few words."""
        return [_brief(self.cases[name]) for name in subject.incidents]


@dataclass(frozen=True)
class Finder:
    """A table whose rows the script searches, sorts and pages through."""

    name: str
    caption: str
    names: Sequence[str]
    kinds: Sequence[str]
    rows: Sequence[Sequence[Any]]
    is_titled: bool = False  # by a heading that says what the caption says

    @property
    def data(self) -> Markup:
        """The rows as JSON that stands within a script element."""
        columns = [{"name": name, "kind": kind} for name, kind in zip(self.names, self.kinds, strict=True)]
        text = json.dumps({"columns": columns, "rows": self.rows}, separators=(",", ":"))
        return Markup(
            text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        )  # no end of the element is in it

    @property
    def first(self) -> Sequence[Sequence[Any]]:
        """The rows that the page shows without the script."""
        return self.rows[:MOST_AT_FIRST]


def _about(application: Application | None) -> Any:
    """Return all that pages tell of an application."""
    return application and [application, application.description]


def _brief(case: Case) -> dict[str, Any]:
    return {
        "incident_id": case.incident_id,
        "severity": case.severity,
        "state": case.state_in_words,
        "chip": case.chip,
        "where": case.where,
        "records": case.records,
        "first_at": case.first_at,
        "untimed": case.untimed,
    }


def _drawn(
    topology: Topology,
    title: str,
    link: Callable[[str], str | None],
    marked: str | None,
    part_link: Callable[[str], str | None] | None = None,
) -> Markup:
    """Return a picture whose styles are in the style sheet; it is empty if it is too large for a page."""
    if len(topology.nodes) > MOST_SHAPES:
        return Markup("")
    svg = drawing.svg(topology, title, link=link, marked=marked, part_link=part_link)
    return Markup(_STYLE.sub("", svg, count=1))  # names in it are escaped


def _marked(lines: Sequence[str]) -> Markup:
    """Return the lines of a difference, of which added and removed ones are told apart."""
    kinds = {"+": "plus", "-": "minus", "~": "turned"}
    marked = [
        Markup('<span class="{}">{}</span>\n').format(kinds.get(line[:1], "same"), line)
        for line in lines[:MOST_OF_A_DIFF]
    ]
    if more := len(lines) - MOST_OF_A_DIFF:
        marked += [Markup("and {}\n").format(counted(more, "more line"))] if more > 0 else []
    return Markup("").join(marked)
