"""The site: what the front tells, its light, hostile names, canaries, stable pages, numbers that equal the tables."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.commands.incidents import acting, listing
from pipelines.settings import Settings, load
from pipelines.settings.runs import Report
from pipelines.site import addresses, cases, content, environment, pages, reading, report
from pipelines.site.content import Content
from pipelines.topology.diff import diff
from pipelines.topology.model import Topology
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store
from tests.testing.pages import Page, dead_letters, feeds_of, gathered, light, with_masks, written
from tests.testing.sites import CANARY, HOSTILE, HOUR, NOW, hour, incident, incident_id
from tests.testing.topologies import chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A warehouse that tests only read."""
    place = tmp_path_factory.mktemp("filled")
    return sites.filled(load(warehouse=str(place / "warehouse"), landing=str(place / "landing")))


@pytest.fixture(scope="module")
def found(filled: Settings) -> Content:
    """What is told of it."""
    return gathered(filled)


@pytest.fixture(scope="module")
def made(filled: Settings) -> Mapping[str, str]:
    """Its pages, by path."""
    return written(filled)


def test_an_empty_warehouse_is_grey_and_short(settings: Settings) -> None:
    empty = gathered(settings)
    assert (empty.light.colour, empty.light.sentence) == ("grey", "Nothing is known yet: no dead letter has landed.")
    made = written(settings)
    assert 'class="hero grey"' in made["index.html"]
    assert "Not set up: dlq, streams-requests" in Page(made["index.html"]).words
    assert not [path for path in made if "/" in path and not path.startswith("assets/")]


def test_the_light_is_green_only_if_data_is_fresh_and_nothing_is_wrong(settings: Settings) -> None:
    dead_letters(settings, *(timedelta(minutes=5 * index) for index in range(1, 200)))
    store(settings, "gold.dlq_incidents", incident(0, last_at=NOW - 9 * HOUR))
    store(settings, "gold.dlq_summary", hour(NOW - HOUR), hour(NOW - 9 * HOUR))
    assert light(settings).colour == "green"
    store(settings, "gold.dlq_incidents", incident(1))
    assert light(settings).colour == "amber"
    store(settings, "gold.dlq_incidents", incident(2, severity="critical"))
    assert light(settings).colour == "red"


def test_an_incident_whose_source_topic_is_not_known_names_none(settings: Settings) -> None:
    store(settings, "gold.dlq_incidents", incident(0, original_topic=None))
    store(settings, "silver.dlq_records", sites.letter(6, original_topic=None))
    (case,) = gathered(settings).incidents
    assert [(sample.dead_letter, sample.source) for sample in case.samples] == [("dlq.orders:0:6", "?:4:58")]
    assert not [
        command.text
        for command in case.commands
        if "None" in command.text or "trace" in command.text or "kcat" in command.text
    ]


def test_stale_data_is_red_where_it_calls_somebody(settings: Settings) -> None:
    dead_letters(settings, *(30 * HOUR + timedelta(minutes=5 * index) for index in range(1, 200)))
    limited = settings.model_copy(update={"silence": settings.silence.model_copy(update={"after_hours": {"dlq": 6}})})
    for found, colour in ((light(settings), "amber"), (light(limited), "red")):
        assert found.colour == colour
        why, *_ = found.reasons
        assert why.startswith("Nothing landed in dlq for longer than usual: the newest record is 30 hours old")
        assert "data 30 hours old (newest dead letter 2026-11-20 06:25 UTC)" in found.sentence
        assert found.sentence.startswith("Nothing is wrong") is (colour == "amber")


def test_a_muted_incident_is_not_loud(settings: Settings) -> None:
    dead_letters(settings, *(timedelta(minutes=5 * index) for index in range(1, 200)))
    store(settings, "gold.dlq_incidents", incident(0, severity="critical"))
    store(settings, "gold.dlq_summary", hour(NOW - HOUR))
    acting.acted(Warehouse(settings), incident_id(0), mute_until="2999-01-01")
    case = reading.gather(Warehouse(settings)).incidents[0]
    assert (case.is_open, case.is_loud) == (True, False)


def test_what_only_a_log_tells_is_unknown_until_a_segment_landed(settings: Settings) -> None:
    counts = {"acknowledged_count": 5, "lost_count": 0, "absent_count": 0, "aborted_count": 0, "open_count": 0}
    at = {"cluster": "default", "hour": NOW - HOUR} | counts
    store(settings, "gold.reconciliation", *(at | {"topic": topic} for topic in ("orders", "refunds")))

    def shown() -> tuple[dict[str | None, int | None], str]:
        delivery = reading.gather(Warehouse(settings), now=NOW).delivery
        assert delivery.total is not None
        lost = {counts.topic: counts.lost for counts in (delivery.total, *delivery.topics)}
        return lost, Page(written(settings)["index.html"].partition('id="delivery"')[2]).words

    lost, words = shown()
    assert lost == {None: None, "orders": None, "refunds": None}
    assert "Whether messages are lost is not: no log segment has landed." in words
    store(settings, "silver.log_ranges", {"cluster": "default", "topic": "orders", "segment": "orders-0/0.log"})
    lost, words = shown()
    assert lost == {None: 0, "orders": 0, "refunds": None}
    assert "Nothing is lost, aborted or unexplained." in words


def test_numbers_equal_the_rows_of_tables(filled: Settings, found: Content) -> None:
    warehouse, equal = Warehouse(filled), {"cluster": "default"}
    sums = jvmless.query(
        warehouse,
        "gold.reconciliation",
        "SELECT sum(lost_count) AS lost, sum(acknowledged_count) AS acknowledged, sum(aborted_count) AS aborted, "
        "sum(dlq_write_failure_count) AS failed_dlq_writes FROM rows",
        equal,
    )[0]
    assert found.delivery.total is not None
    assert {name: getattr(found.delivery.total, name) for name in sums} == sums
    assert [(counts.messages, counts.first_offset, counts.last_offset) for counts in found.delivery.lost] == [(3, 7, 9)]
    hours = jvmless.rows(warehouse, "gold.dlq_summary", equal)
    week = [row for row in hours if row["hour"] > NOW - 168 * HOUR]
    assert sum(found.timeline.totals) == sum(row["record_count"] for row in week)

    def within(begin: timedelta, end: timedelta = 0 * HOUR) -> int:
        times = [(row["first_routed_at"], row["record_count"]) for row in hours]
        return sum(count for at, count in times if NOW - begin < at <= NOW - end)

    week_ago = timedelta(days=7)
    assert found.timeline.hour_before == within(week_ago + HOUR, week_ago) > 0
    assert found.timeline.last_hour == sum(series.last_hour for series in found.timeline.series) == within(HOUR)
    assert sum(series.day for series in found.timeline.series) == within(24 * HOUR) > within(HOUR)
    assert sum(series.week for series in found.timeline.series) == within(week_ago) > within(24 * HOUR)
    rows = jvmless.rows(warehouse, "gold.dlq_incidents", equal)
    assert {incident.incident_id: incident.records for incident in found.incidents} == {
        row["incident_id"]: row["record_count"] for row in rows
    }
    opened = {incident.incident_id for incident in found.open}
    assert sum(plan.records for plan in found.replay) == sum(
        row["record_count"] - row["without_payload_count"] for row in rows if row["incident_id"] in opened
    )
    groups = {group.name: group.records for group in found.groups}
    assert groups["orders-workers"] == sum(
        row["record_count"] for row in hours if row["consumer_group"] == "orders-workers"
    )
    assert found.quarantine.rows == 1


@pytest.mark.parametrize("age", [0, 1, 166, 167, 168, 169, 400])
def test_the_days_shown_hold_the_newest_dead_letter(settings: Settings, age: int) -> None:
    store(settings, "gold.dlq_incidents", incident(0))
    store(settings, "gold.dlq_summary", hour(NOW - age * HOUR, records=7), hour(NOW - (age + 1000) * HOUR))
    found = reading.gather(Warehouse(settings), now=NOW)
    assert sum(found.timeline.totals) == 7


def test_the_front_stands_in_the_order_of_questions(made: Mapping[str, str]) -> None:
    words = Page(made["index.html"].partition("<main")[2]).words
    order = ["incidents open", "Dead letters, the last 7 days", "Open incidents", "Findings", "lost messages 3"]
    order += ["Topologies that need"]
    order += ["Payloads and replays", "In quarantine", "The pipeline"]
    assert [words.index(part) for part in order] == sorted(words.index(part) for part in order)
    for part in (
        "poison pill orders:4:58, 12 times",
        "dlq.orders:0:5",
        "afterlog show dlq.orders:0:5",
        "afterlog trace orders:4:58",
        "kcat -b",
        "afterlog describe totals-app --diff 1 2",
        "orders is read by totals-app",
        f"changed 60 minutes before {incident_id(0)}",
        "3 messages of orders were acknowledged and are not in its log.",
        "3 messages of orders, partition 4, offsets 7 to 9",
        "afterlog readmit silver.dlq_records",
        "totals-app , revision 2",
    ):
        assert part in words, part


def test_deployments_are_marked_and_stop_the_page_from_saying_that_it_knows_of_none(settings: Settings) -> None:
    store(settings, "gold.dlq_incidents", incident(0))
    store(settings, "gold.dlq_summary", hour(NOW - HOUR))

    def made_now() -> tuple[str, str]:
        pages_now = written(settings)
        return pages_now["index.html"], pages_now[addresses.incident(incident_id(0))]

    (front, case), none = made_now(), "deployments that land in changes/, where none has landed."
    assert "mark deployment" not in front
    assert none in Page(case).words
    done = {"cluster": "default", "changed_at": NOW - 2 * HOUR}
    store(
        settings,
        "silver.changes",
        done | {"application": HOSTILE[0], "what": HOSTILE[3], "commit": None},
        done | {"application": None, "what": None, "commit": "ab12cd3"},
    )
    front, case = made_now()
    assert front.count('class="mark deployment"') == 2
    assert "ab12cd3 was deployed" in Page(front).words
    assert "<script>alert(1)</ script>, evil\\u202etxt. exe\\u2066 was deployed" in Page(front).words
    assert none not in Page(case).words
    assert "brokers' starts and deployments." in Page(case).words


def test_feeds_are_on_the_front_only_if_they_are_stale(settings: Settings) -> None:
    dead_letters(settings, *(timedelta(minutes=5 * index) for index in range(1, 200)))

    def made_at(now: datetime) -> dict[str, str]:
        content = reading.gather(Warehouse(settings), feeds=feeds_of(settings, now), now=now)
        return {page.path: page.text() for page in pages.pages(content)}

    assert "newest record" not in Page(made_at(NOW)["index.html"]).words
    made = made_at(NOW + 40 * HOUR)
    assert Page(made["index.html"]).words.count("Nothing landed in dlq for longer than usual") == 1
    assert "Nothing landed in dlq" in Page(made["delivery.html"]).words


def test_no_table_of_the_front_is_on_another_page(made: Mapping[str, str]) -> None:
    def tables(path: str) -> set[str]:
        return set(re.findall(r"<caption[^>]*>(.*?)</caption>", made[path]))

    assert tables("index.html")
    for path in ("delivery.html", "quality.html", "places.html", "incidents.html"):
        assert not tables("index.html") & tables(path), path


def pre(text: str) -> list[str]:
    """The lines of each preformatted part of a page."""
    return [html.unescape(re.sub("<[^>]+>", "", line)) for line in re.findall("<pre[^>]*>(.*?)</pre>", text, re.DOTALL)]


def test_pages_of_groups_and_applications_show_the_topology(settings: Settings) -> None:
    sites.filled(settings)
    sites.application(settings, "orders-workers")
    told_of = {application.name: application for application in gathered(settings).applications}["orders-workers"]
    after, before = (Topology.parsed(revision.description or "") for revision in told_of.revisions)
    difference = diff(before, after).as_text()
    assert "+   Processor: count\n+     store: s\n" in difference
    made = written(settings)
    for path in (addresses.group("orders-workers"), addresses.application("orders-workers")):
        text, words = made[path], Page(made[path]).words
        picture = text.partition('class="topology"')[2].partition("</svg>")[0]
        assert f'<a href="../{addresses.topic("totals")}">' in picture
        assert pre(text) == [difference]
        for part in (
            "OK The topology of orders-workers is known.",
            "19,845 dead letters in all",
            "15,876 dead letters by hour, in the 168 hours of the clock until that of the newest.",
            "3: 2 accepted, 1 refused ; the first 2026-11-20 06:30 UTC , the last 2026-11-21 08:30 UTC",
            "Refused with INVALID_REQUEST",
            "median 3.5 ms, 95 of 100 within 12 ms, at most 1,234 ms",
            "3 times: 2 answered by a push (0.2 seconds in the median), 1 not answered",
            "Revision 2 since 2026-11-21 08:30 UTC 1 node added, 1 edge added, 1 topic removed",
            "afterlog describe orders-workers --diff 1 2",
            "Revision 1 since 2026-11-20 06:30 UTC until 2026-11-21 08:30 UTC the first",
        ):
            assert part in words, (path, part)
    nothing = Page(made[addresses.application("totals-app")]).words
    assert "Dead letters of its group None is known." in nothing


def test_an_application_says_what_is_wrong_with_it_and_which_push_a_time_is_of(settings: Settings) -> None:
    sites.application(settings, "refunds", health="OK", defects=["dangling_successor"])
    made = written(settings)
    (application,) = gathered(settings).applications
    assert application.last_accepted_at == NOW - 5 * HOUR
    words = Page(made[addresses.application("refunds")]).words
    assert "OK, malformed The topology of refunds is known." in words
    assert "Last accepted push 2026-11-21 07:30 UTC" in words
    assert "Last pushed" not in words
    assert "OK, malformed" in Page(made[addresses.FRONT]).words
    (row,) = pages._Site(gathered(settings), None).subjects()[2].rows
    assert row[1:3] == ["OK, malformed", "its defects"]


def test_replayed_records_of_a_plan_add_up_on_the_front(settings: Settings) -> None:
    plan = content.Replay("7KQ2-MD4X", NOW, "the rules", "original", 9, 8, 3, 1, 4)
    text = next(
        page.text()
        for page in pages.pages(replace(gathered(settings), replays=(plan,)))
        if page.path == addresses.FRONT
    )
    assert "Replayed Delivered Died again Outcome unknown 7KQ2-MD4X" in Page(text).words
    assert Page(text).words.partition("original 9 ")[2].startswith("8 3 1 4 ")


def test_a_column_of_earlier_warehouses_is_not_shown_and_payloads_are_counted_without_it(settings: Settings) -> None:
    store(settings, "gold.dlq_incidents", incident(0, record_count=12, without_payload_count=2, suspected_count=1))
    place = Warehouse(settings).location("gold.dlq_incidents")
    earlier = DeltaTable(place).to_pyarrow_table().append_column("replayable_count", pyarrow.array([5]))
    write_deltalake(place, earlier, mode="overwrite", schema_mode="overwrite")
    assert "replayable_count" not in listing.listed(Warehouse(settings), "json").result
    assert [plan.records for plan in gathered(settings).replay] == [9]


def test_a_topology_is_drawn_again_only_if_it_changed(found: Content, tmp_path: Path) -> None:
    first, path = found, addresses.application("totals-app")
    report.write(tmp_path, first)
    page = tmp_path / path
    page.write_text(
        page.read_text().replace("</svg>", "drawn before</svg>").replace("</span>\n", " as before</span>\n")
    )

    def rewritten(**more: Any) -> str:
        """The page after something changed in its application."""
        changed = tuple(
            replace(application, **more) if application.name == "totals-app" else application
            for application in first.applications
        )
        assert path in report.write(tmp_path, replace(first, applications=changed))
        return page.read_text()

    seen = rewritten(last_seen_at=NOW)
    assert ("drawn before" in seen, "as before" in seen) == (True, True)
    other = rewritten(description=sites.description(node="another"))
    assert ("drawn before" in other, "another" in other, "as before" in other) == (False, True, True)
    before = {application.name: application for application in first.applications}["totals-app"].revisions
    third = replace(before[0], revision=3, topology_hash="third", description=sites.description(node="third"))
    assert pre(rewritten(revisions=(third, *before)))[1].startswith("Nodes +1, edges +2 -1, stores +1. as before")


def test_large_topologies_and_long_differences_are_cut(found: Content) -> None:
    large = json.dumps(chain(500).wire())
    application = found.applications[0]
    revised = (replace(application.revisions[0], topology_hash="large", description=large), application.revisions[1])
    path = addresses.application(application.name)
    made = {
        page.path: page.text
        for page in pages.pages(
            replace(found, applications=(replace(application, description=large, revisions=revised),))
        )
    }[path]()
    assert "It is too large to draw here: afterlog describe" in Page(made).words
    assert 'class="topology"' not in made
    assert pre(made)[0].count("\n") == 201
    assert re.search(r"and [\d,]+ more lines$", pre(made)[0].rstrip())
    broken = (replace(application.revisions[0], topology_hash="broken", description="{"), application.revisions[1])
    told_of = replace(found, applications=(replace(application, description=None, revisions=broken),))
    words = Page({page.path: page.text for page in pages.pages(told_of)}[path]()).words
    assert "What has landed cannot be compared." in words
    assert "No description of it is known." in words


def test_the_sentence_of_the_front_tells_the_time_of_the_newest_dead_letter(settings: Settings) -> None:
    dead_letters(settings, *(timedelta(minutes=4 + 5 * index) for index in range(200)))
    store(settings, "gold.dlq_incidents", incident(0))
    assert gathered(settings).light.sentence.endswith("; data 4 minutes old (newest dead letter 12:26 UTC).")
    text = written(settings)["index.html"]
    assert '(newest dead letter <time datetime="2026-11-21T12:26:00.000Z">12:26 UTC</time>).</h1>' in text


def test_long_names_are_cut_but_on_their_own_pages(made: Mapping[str, str]) -> None:
    name = HOSTILE[6]
    own = (addresses.group(name), addresses.topic(name), addresses.application(name))
    for path in ("index.html", "places.html", "delivery.html", addresses.incident(incident_id(0)), *own):
        outside = re.sub("<(title|code|script|h1)[ >].*?</\\1>", "", made[path], flags=re.DOTALL)
        assert name not in Page(outside).words, path
    assert f'title="{name}">{"x" * 20}…{"x" * 19}</span>' in made["places.html"]
    assert all(f">{name}</h1>" in made[path] for path in own)


def test_boxes_of_pictures_lead_to_pages(made: Mapping[str, str]) -> None:
    picture = made[addresses.incident(incident_id(0))].partition('class="topology"')[2].partition("</svg>")[0]
    links = re.findall(r'<a href="\.\./([^"]+)">', picture)
    assert {addresses.topic("orders"), addresses.application("totals-app")} <= set(links)
    assert set(links) <= made.keys()


def test_hostile_names_are_text_everywhere(made: Mapping[str, str]) -> None:
    known = (
        "a article body b br button caption circle code dd details div dl dt footer g h1 h2 h3 head header html i input"
    )
    known += (
        " label li link main meta nav noscript ol option p path pre rect script section select span style summary svg"
    )
    known += " table tbody td text th thead time title tr ul wbr"
    for path, text in made.items():
        if path.endswith(".html"):
            page = Page(text)
            assert set(page.elements) <= set(known.split()), path
            assert not [name for name in page.attributes if name.startswith("on") or name == "style"], path
            assert all(line.isprintable() or line == "\n" for line in text), path
            assert "49</b>" not in text
            assert len(page.ids) == len(set(page.ids)), path
    assert "<script>alert(1)</script>" in Page(made[addresses.group(HOSTILE[0])]).words
    assert "evil\\u202etxt.exe\\u2066" in Page(made[addresses.topic(HOSTILE[3])]).words


def test_files_have_safe_names_and_every_link_leads_to_one(made: Mapping[str, str]) -> None:
    assert len({path.lower() for path in made}) == len(made)
    for path, text in made.items():
        assert re.fullmatch(r"[A-Za-z0-9-]+(/[A-Za-z0-9-]+)?\.(html|css|js|svg)", path)
        for link in Page(text).links if path.endswith(".html") else ():
            target, _, anchor = link.partition("?")[0].partition("#")
            place = "/".join(path.split("/")[:-1]) if target else path
            whole = target.removeprefix("../") if target.startswith("../") or not place else f"{place}/{target}"
            whole = whole if target else path
            assert whole in made or whole == environment.DATA_DOCS + "/index.html", (path, link)
            if anchor and whole in made:
                assert anchor in Page(made[whole]).ids, (path, link)


def test_no_payload_key_or_header_value_is_on_a_page(made: Mapping[str, str], found: Content) -> None:
    assert all(CANARY not in text for text in made.values())
    assert CANARY not in json.dumps(found.as_json())


def test_samples_are_on_pages_of_open_incidents_if_asked_masked(filled: Settings) -> None:
    plain = written(with_masks(filled))
    having = {path for path, text in plain.items() if CANARY in text}
    assert having
    for path in having:
        assert path.startswith("incidents/")
        assert "The sample on this page is masked" in plain[path]
        assert "No payload, key or header value" not in plain[path]
    hidden = [{"key": True, "do": "drop"}, {"value": True, "do": "drop"}, {"header": "x-*", "do": "drop"}]
    masked = written(with_masks(filled, *hidden))
    assert not [path for path, text in masked.items() if CANARY in text]
    assert {path for path, text in masked.items() if "&lt;dropped&gt;" in text} == having
    no_key = written(with_masks(filled, {"key": True, "do": "hash"}))
    assert not [path for path, text in no_key.items() if CANARY in text]
    assert {path for path, text in no_key.items() if "the environment variable" in text} == having


def test_errors_on_pages_are_masked(filled: Settings, made: Mapping[str, str]) -> None:
    secret = "Offset &lt;*&gt; rejected"
    assert [path for path, text in made.items() if secret in text]
    for do in ("drop", "hash"):
        masked = with_masks(filled, {"error": True, "do": do}, payloads=False)
        assert not [path for path, text in written(masked).items() if secret in text or "Offset <" in text]
    orders = with_masks(filled, {"error": True, "do": "drop", "topic": "orders"}, payloads=False)
    assert {incident.topic for incident in gathered(orders).incidents if incident.error == "<dropped>"} >= {"orders"}
    assert {incident.topic for incident in gathered(orders).incidents if incident.error != "<dropped>"} - {
        "orders",
        None,
    }


def test_the_page_of_an_incident_that_another_one_took_in_leads_to_it(settings: Settings, tmp_path: Path) -> None:
    table, into, gone = "gold.dlq_incidents", incident_id(0), incident_id(1)
    store(settings, table, incident(0), incident(1, last_at=NOW - 3 * HOUR))
    store(settings, "silver.dlq_records", sites.letter())
    site = tmp_path / "site"
    report.write(site, gathered(with_masks(settings)))
    page = site / addresses.incident(gone)
    assert CANARY in page.read_text()

    shutil.rmtree(Path(settings.warehouse) / "gold")
    store(settings, table, incident(0, first_at=NOW - 5 * HOUR), incident(1, record_count=0, merged_into=into))
    masked = with_masks(settings, *({part: True, "do": "drop"} for part in ("key", "value", "error")))
    report.write(site, gathered(masked))
    found = Page(page.read_text())
    assert f"../{addresses.incident(into)}" in found.links
    assert f"{gone} is {into}" in "".join(found.data)
    assert not [file for file in site.rglob("*.html") if CANARY in file.read_text()], "masks that came later hide it"


def test_masks_change_what_is_current(filled: Settings) -> None:
    behind: list[Any] = []
    states = {
        report._state(Warehouse(masked), behind, ())
        for masked in (
            filled,
            with_masks(filled),
            with_masks(filled, {"error": True, "do": "drop"}),
            with_masks(filled, {"error": True, "do": "drop"}, payloads=False),
        )
    }
    assert len(states) == 4


def test_every_page_has_a_strict_policy_and_one_main_heading(made: Mapping[str, str]) -> None:
    for path, text in made.items():
        if path.endswith(".html"):
            page = Page(text)
            assert "default-src 'none'; style-src 'self'; script-src 'self'" in text
            assert "unsafe" not in text.partition("<body>")[0]
            assert page.elements.count("h1") == page.elements.count("main") == 1, path
            assert page.elements.count("table") == page.elements.count("caption"), path


def test_only_pages_that_changed_are_written_and_none_is_removed(
    filled: Settings, found: Content, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    first = report.write(site, found)
    assert {"index.html", "incidents.html", addresses.incident(incident_id(0)), "assets/site.js"} <= set(first)
    again = reading.gather(Warehouse(filled), now=NOW + timedelta(minutes=1))
    assert report.write(site, again) == ["quality.html", "index.html"]  # these tell the time
    gone = replace(again, incidents=again.incidents[1:], groups=(), topics=())
    assert addresses.incident(again.incidents[0].incident_id) not in report.write(site, gone)
    assert (site / addresses.incident(again.incidents[0].incident_id)).is_file()
    (site / "delivery.html").unlink()
    (site / "places.html").write_text("damaged")
    (site / report.MADE).write_text("[")
    assert {"delivery.html", "places.html"} <= set(report.write(site, gone))
    assert not list(site.rglob("*.tmp"))


def test_pages_of_incidents_tell_their_addresses(filled: Settings) -> None:
    url = "https://a.example/reports/"
    found = gathered(filled.model_copy(update={"report": Report(url=url)}))
    made = {page.path: page.text() for page in pages.pages(found)}
    for incident_told in found.incidents:
        assert incident_told.page is not None
        path = incident_told.page.removeprefix(url)
        assert (path in made, f"<code>{incident_told.page}</code>" in made[path]) == (True, True)
    assert {incident.page for incident in gathered(filled).incidents} == {None}


def test_the_command_for_dead_letters_asks_for_those_of_the_cluster(settings: Settings) -> None:
    settings = settings.model_copy(update={"cluster": "it's second"})
    store(settings, "gold.dlq_incidents", incident(0), incident(0, cluster="it's second"))
    (case,) = gathered(settings).incidents
    (command,) = (command.text for command in case.commands if command.words == "its dead letters")
    _, _, statement, *values = shlex.split(command)
    assert "WHERE cluster = :cluster AND " in statement
    assert values[:2] == ["--param", "cluster=it's second"]


def test_json_carries_what_the_pages_say(found: Content) -> None:
    plain = json.loads(json.dumps(found.as_json()))
    assert plain["light"]["sentence"] == found.light.sentence
    assert [incident["incident_id"] for incident in plain["incidents"]] == [
        incident.incident_id for incident in found.incidents
    ]
    assert plain["incidents"][0]["blast"]["topic"] == found.incidents[0].topic
    assert plain["made_at"] == "2026-11-21T12:30:00.000Z"
    assert "description" not in plain["applications"][0]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param({}, "poison pill orders:4:58, 12 times", id="poison pill"),
        pytest.param({"verdict": "SYSTEMIC", "offset_share": 0.93}, "systemic, 93 % of offsets", id="systemic"),
        pytest.param({"verdict": "PARTITION_LOCAL"}, "partition local, 100 % in partition 4", id="partition"),
        pytest.param({"verdict": "FLOOD", "offset_share": 0.001}, "flood", id="a share that tells nothing"),
        pytest.param({"verdict": "UNDETERMINED", "offset_share": None}, "undetermined", id="no share"),
    ],
)
def test_a_verdict_in_a_few_words(more: dict[str, Any], words: str) -> None:
    assert cases.chip(incident(0, **more)) == words


def test_a_warehouse_at_a_uri_tells_the_same(spark: SparkSession, filled: Settings, found: Content) -> None:
    by_uri = filled.model_copy(update={"warehouse": Path(filled.warehouse).as_uri()})
    local = found.as_json()
    remote = reading.gather(Warehouse(by_uri, spark), now=NOW).as_json()
    for part in (
        "light",
        "timeline",
        "incidents",
        "findings",
        "delivery",
        "applications",
        "replay",
        "quarantine",
        "groups",
        "topics",
    ):
        assert remote[part] == local[part], part
