"""The site in a real headless Chromium: no error, no outside request, names as text, search, sizes, accessibility."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from local import screenshots
from pipelines.commands.incidents import acting
from pipelines.settings import ROOT, Settings, load
from pipelines.site import addresses, pages, reading, report
from pipelines.warehouse.tables import Warehouse
from tests.testing import browser, sites
from tests.testing.browser import Browser
from tests.testing.deliveries import store
from tests.testing.sites import HOSTILE, NOW, incident, incident_id

pytestmark = pytest.mark.skipif(screenshots.browser() is None, reason="there is no Chromium: apt-get install chromium")

FRONT, INCIDENT = "index.html", addresses.incident(incident_id(0))
KINDS = {
    "front": FRONT,
    "incidents": "incidents.html",
    "groups and topics": "places.html",
    "delivery": "delivery.html",
    "quality": "quality.html",
    "incident": INCIDENT,
    "incident with hostile names": addresses.incident(incident_id(2)),
    "group": addresses.group("orders-workers"),
    "group with a hostile name": addresses.group(HOSTILE[1]),
    "topic": addresses.topic("orders"),
    "application": addresses.application("totals-app"),
    "application with a hostile name": addresses.application(HOSTILE[4]),
}
# Pages with hostile names are made like the others; all of them are opened in the ordinary run.
ORDINARY = [pytest.param(kind, marks=[pytest.mark.thorough] * ("hostile" in kind)) for kind in KINDS]
SERVED = ("front", "incident", "application")  # in the ordinary run; a page's policy, which can refuse, is that of all
FROM = [
    *(pytest.param(kind, False, id=f"file-{kind}") for kind in KINDS),
    *(
        pytest.param(kind, True, id=f"http-{kind}", marks=[pytest.mark.thorough] * (kind not in SERVED))
        for kind in KINDS
    ),
]


@dataclass(frozen=True)
class Site:
    """A site that is built, and its address when it is served."""

    directory: Path
    address: str
    settings: Settings


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("site")
    settings = sites.filled(load(warehouse=str(place / "warehouse"), landing=str(place / "landing")))
    warehouse = Warehouse(settings)
    front = report.build(warehouse, content=reading.gather(warehouse, now=NOW))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(front.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield Site(front.parent, f"http://127.0.0.1:{server.server_address[1]}", settings)
        server.shutdown()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser.browser(tmp_path_factory.mktemp("chromium")) as item:
        yield item


@pytest.fixture
def tab(chromium: Browser) -> Browser:
    chromium.forget()
    return chromium


@pytest.mark.parametrize(("kind", "served"), FROM)
def test_a_page_has_no_error_asks_for_nothing_outside_and_fits_and_long_names_make_no_row_tall(
    site: Site, tab: Browser, kind: str, served: bool
) -> None:
    root = site.address if served else site.directory.as_uri()
    for width, most, dark in ((1400, 160, False), (1000, 250, False), (400, 10_000, True)):
        tab.open(f"{root}/{KINDS[kind]}", width=width, dark=dark)
        assert tab.run("getComputedStyle(document.querySelector('.brand')).fontWeight") == "700"  # the sheet is loaded
        assert tab.run("document.documentElement.scrollWidth") <= width
        tall = tab.run(
            "[...document.querySelectorAll('tbody tr, .incidents summary')].map((one) => [one.offsetHeight, "
            f"one.textContent.slice(0, 80)]).filter((one) => one[0] > {most})"
        )
        assert tall == []
        tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert tab.run("document.documentElement.scrollWidth") <= width
        cut = tab.run(
            "[...document.querySelectorAll('main *:not(svg *)')].filter((one) => one.getClientRects().length"
            " && !one.closest('.picture, .days, thead') && one.getBoundingClientRect().right > innerWidth)"
            ".map((one) => one.outerHTML.slice(0, 120))"
        )
        assert cut == []
    assert (tab.errors, tab.failed, tab.dialogs) == ([], [], [])
    assert tab.requests
    assert all(request.startswith(root) for request in tab.requests)


def test_paper_shows_pictures_in_light_colours_and_without_a_frame(site: Site, tab: Browser) -> None:
    """A frame around a picture that is taller than a sheet of paper makes Chromium print an empty sheet before it."""
    colour = "getComputedStyle(document.querySelector('.picture .topology text')).fill"
    frame = "getComputedStyle(document.querySelector('.picture')).borderTopWidth"
    address = f"{site.address}/{KINDS['application']}"

    tab.open(address)
    light = tab.run(colour)
    tab.open(address, dark=True)
    dark = tab.run(colour)
    scheme = {"name": "prefers-color-scheme", "value": "dark"}
    tab.send("Emulation.setEmulatedMedia", media="print", features=[scheme])
    printed, framed = tab.run(colour), tab.run(frame)
    tab.send("Emulation.setEmulatedMedia", media="")

    assert light != dark
    assert (printed, framed) == (light, "0px")


def test_every_link_of_the_pages_leads_somewhere(site: Site, tab: Browser) -> None:
    found = set()
    for path in KINDS.values():
        tab.open(f"{site.address}/{path}")
        found |= set(
            tab.run(
                "[...document.querySelectorAll('[href]')]"
                ".map((one) => new URL(one.getAttribute('href'), location).href)"
            )
        )
    assert len(found) > 40
    for address in sorted({text.partition("#")[0] for text in found}):
        assert address.startswith(site.address)
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("kind", ORDINARY)
def test_axe_finds_nothing_serious(site: Site, tab: Browser, kind: str, dark: bool) -> None:
    known = importlib.util.find_spec("axe_core_python")
    if known is None or known.origin is None:
        pytest.skip("axe-core-python is not installed")
    tab.open(f"{site.address}/{KINDS[kind]}", dark=dark)
    tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tab.run(Path(known.origin).with_name("axe.min.js").read_text(encoding="utf-8") + ";0")
    violations = tab.run(
        "axe.run().then((told) => told.violations"
        ".map((one) => [one.impact, one.id, one.nodes.slice(0, 3).map((node) => node.html)]))"
    )
    assert [violation for violation in violations if violation[0] in ("serious", "critical")] == []


def test_hostile_names_are_text(site: Site, tab: Browser) -> None:
    tab.open((site.directory / addresses.group(HOSTILE[0])).as_uri())
    assert tab.run("document.querySelector('h1').textContent") == HOSTILE[0]
    tab.open((site.directory / addresses.topic(HOSTILE[4])).as_uri())
    assert tab.run("document.querySelector('h1').textContent") == HOSTILE[4]
    tab.open((site.directory / "incidents.html").as_uri())
    search(tab, "onerror=alert")
    assert tab.run("document.querySelector('#incidents-rows tbody tr td:nth-child(5)').textContent") == HOSTILE[1]
    assert tab.run("document.querySelectorAll('main script:not([type]), main img').length") == 0
    assert (tab.errors, tab.dialogs) == ([], [])


def search(tab: Browser, text: str) -> None:
    tab.run(
        "(() => { const field = document.querySelector('#incidents input');"
        f" field.value = {json.dumps(text)}; field.dispatchEvent(new Event('input')); }})()"
    )


def rows(tab: Browser) -> list[str]:
    found = tab.run("[...document.querySelectorAll('#incidents-rows tbody tr')].map((one) => one.cells[0].textContent)")
    assert isinstance(found, list)
    return found


def test_ten_thousand_incidents_are_searched_sorted_and_paged_at_once(
    settings: Settings, tmp_path: Path, tab: Browser
) -> None:
    Path(settings.landing).mkdir()
    many = [
        incident(number, record_count=number + 1, consumer_group=f"group-{number % 500}", severity="low")
        for number in range(10_000)
    ]
    store(settings, "gold.dlq_incidents", *many)
    told = reading.gather(Warehouse(settings), now=NOW)
    (tmp_path / "site" / "assets").mkdir(parents=True)
    for page in pages.pages(told):
        if page.path == addresses.INCIDENTS or page.path.startswith("assets/"):
            (tmp_path / "site" / page.path).write_text(page.text(), encoding="utf-8")
    tab.open((tmp_path / "site" / "incidents.html").as_uri())
    assert len(rows(tab)) == 50
    took = tab.run(
        "(() => { const field = document.querySelector('#incidents input'); const before = performance.now();"
        " field.value = 'group-123'; field.dispatchEvent(new Event('input')); return performance.now() - before; })()"
    )
    assert took < 1000
    assert tab.run("document.querySelector('.finder [role=status]').textContent") == "1 to 20 of 20"
    search(tab, "")
    assert tab.run("document.querySelector('.finder [role=status]').textContent") == "1 to 50 of 10000"
    tab.run("document.querySelectorAll('#incidents-rows th button')[6].click()")
    assert rows(tab)[0] == incident_id(9_999)
    assert tab.run("document.querySelectorAll('#incidents-rows th')[6].getAttribute('aria-sort')") == "descending"
    tab.run("document.querySelector('[data-page=after]').click()")
    assert rows(tab)[0] == incident_id(9_949)
    assert tab.run("document.querySelector('.finder [role=status]').textContent") == "51 to 100 of 10000"
    search(tab, "nothing is named so")
    assert tab.run("document.querySelector('.finder [role=status]').textContent") == "Nothing matches."
    assert (tab.errors, tab.failed) == ([], [])


def test_each_incident_is_open_or_resolved_in_the_table_of_all(
    settings: Settings, tmp_path: Path, tab: Browser
) -> None:
    Path(settings.landing).mkdir()
    old = NOW - timedelta(days=40)
    store(settings, "gold.dlq_incidents", *(incident(number) for number in range(4)), incident(4, last_at=old))
    acting.acted(Warehouse(settings), incident_id(0), mute_until="2999-01-01")
    acting.acted(Warehouse(settings), incident_id(4), mute_until="2999-01-01")
    acting.acted(Warehouse(settings), incident_id(1), resolve=True)
    told = reading.gather(Warehouse(settings), now=datetime.now(UTC))
    (tmp_path / "site" / "assets").mkdir(parents=True)
    for page in pages.pages(told):
        if page.path == addresses.INCIDENTS or page.path.startswith("assets/"):
            (tmp_path / "site" / page.path).write_text(page.text(), encoding="utf-8")
    tab.open((tmp_path / "site" / "incidents.html").as_uri())
    by_choice = {}
    for name in ("open", "resolved", "muted"):
        tab.run(
            "(() => { const field = [...document.querySelectorAll('#incidents select')]"
            f".find((one) => [...one.options].some((option) => option.text === '{name}'));"
            f" field.value = [...field.options].find((one) => one.text === '{name}').value;"
            " field.dispatchEvent(new Event('change')); })()"
        )
        by_choice[name] = set(rows(tab))
    assert by_choice["open"] | by_choice["resolved"] == {incident_id(number) for number in range(5)}
    assert not by_choice["open"] & by_choice["resolved"]
    assert by_choice["muted"] == {incident_id(0), incident_id(4)}
    assert (tab.errors, tab.failed) == ([], [])


def test_times_are_told_in_local_time_commands_can_be_copied_and_pictures_zoom(site: Site, tab: Browser) -> None:
    tab.open((site.directory / INCIDENT).as_uri())
    assert re.search(r"local time, .+ ago$", tab.run("document.querySelector('main time').title"))
    assert tab.run("document.querySelectorAll('button.copy:not([hidden])').length") >= 5
    copied = (
        "(async () => { const one = document.querySelector('button.copy'); one.click();"
        " await new Promise((done) => setTimeout(done, 300)); return one.textContent; })()"
    )
    assert tab.run(copied) in ("Copied", "Selected")
    width = "Number(document.querySelector('.picture svg').getAttribute('width'))"
    before = tab.run(width)
    tab.run("document.querySelector('[data-zoom=\"1.25\"]').click()")
    assert tab.run(width) == pytest.approx(before * 1.25)
    assert tab.run("document.querySelectorAll('.picture .marked').length") == 1
    assert tab.run("document.querySelectorAll('.picture a').length") >= 1


def press(tab: Browser, name: str, text: str = "") -> None:
    """Press a key and let it go."""
    codes = {"Tab": 9, "Enter": 13}
    key = {"key": name, "code": name, "windowsVirtualKeyCode": codes.get(name, 0)} | ({"text": text} if text else {})
    tab.send("Input.dispatchKeyEvent", type="keyDown", **key)
    tab.send("Input.dispatchKeyEvent", type="keyUp", **key)


def tab_to(tab: Browser, selector: str, most: int = 300) -> None:
    """Press Tab until the focus is on an element."""
    for _ in range(most):
        press(tab, "Tab")
        if tab.run(f"document.activeElement.matches({json.dumps(selector)})"):
            return
    raise AssertionError(f"Tab does not reach {selector}.")


@pytest.mark.parametrize("kind", ORDINARY)
def test_the_keyboard_reaches_all_in_order_and_the_focus_is_seen(site: Site, tab: Browser, kind: str) -> None:
    for width in (1400, 400):
        tab.open((site.directory / KINDS[kind]).as_uri(), width=width)
        wanted = tab.run(
            "[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex=\"0\"]')]"
            ".filter((one) => one.checkVisibility() && !one.disabled).length"
        )
        unseen: list[str] = []
        places: list[int] = []
        for _ in range(wanted + 5):
            press(tab, "Tab")
            told = tab.run(
                "(() => { const one = document.activeElement; if (one === document.body) return null;"
                " const box = one.getBoundingClientRect(), how = getComputedStyle(one);"
                " const all = [...document.querySelectorAll('*')];"
                " return [all.indexOf(one), how.outlineStyle !== 'none' && parseFloat(how.outlineWidth) >= 2"
                " && box.width > 3 && box.height > 3 && box.right > 0 && box.left < innerWidth"
                " && box.bottom > 0 && box.top < innerHeight, one.outerHTML.slice(0, 100)]; })()"
            )
            if told is None or told[0] in places[:1]:  # all around
                break
            places.append(told[0])
            if not told[1]:
                unseen.append(told[2])
        assert unseen == []
        assert places == sorted(places)  # in the order in which the page reads
        assert len(places) >= wanted


def test_the_keyboard_skips_opens_sorts_searches_and_pages(site: Site, tab: Browser) -> None:
    tab.open((site.directory / FRONT).as_uri())
    tab_to(tab, ".skip", most=1)
    press(tab, "Enter", "\r")
    assert tab.run("location.hash") == "#main"
    tab_to(tab, ".incidents summary")
    press(tab, "Enter", "\r")
    assert tab.run("document.querySelector('.incidents details').open")
    tab_to(tab, ".incidents .body a")
    tab.open((site.directory / KINDS["application"]).as_uri())
    tab_to(tab, ".revisions summary")
    press(tab, "Enter", "\r")
    assert tab.run("document.querySelector('.revisions details').open")
    tab_to(tab, ".diff")
    tab.open((site.directory / "incidents.html").as_uri(), width=400)
    tab_to(tab, "input[type=search]")
    for letter in "etc":
        tab.send("Input.insertText", text=letter)
    assert len(rows(tab)) == 1
    tab_to(tab, "#incidents-rows th:nth-child(7) button")
    press(tab, "Enter", "\r")
    assert tab.run("document.querySelectorAll('#incidents-rows th')[6].getAttribute('aria-sort')") == "descending"


def test_times_turn_into_local_time(site: Site, tab: Browser) -> None:
    tab.send("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    try:
        tab.open((site.directory / "incidents.html").as_uri(), width=400)
        first = "document.querySelector('#incidents-rows tbody time').textContent"
        assert tab.run(first) == "2026-11-21 09:30"
        tab_to(tab, "#clock")
        press(tab, "Enter", "\r")
        assert tab.run(first) == "2026-11-21 15:00"
        assert tab.run("document.querySelectorAll('#incidents-rows th')[7].textContent") == "Since (local)"
        assert tab.run("document.querySelector('#incidents-rows tbody time').title").startswith(
            "2026-11-21 09:30:00 UTC"
        )
        tab.run("document.querySelectorAll('#incidents-rows th button')[6].click()")  # rows that are made anew
        assert tab.run(first) == "2026-11-21 15:00"
        tab.open((site.directory / INCIDENT).as_uri())  # the browser remembers it
        assert tab.run("document.querySelector('main time').textContent") == "2026-11-21 15:00 local"
        tab.run("document.getElementById('clock').click()")
        assert tab.run("document.querySelector('main time').textContent") == "2026-11-21 09:30 UTC"
        tab.open((site.directory / FRONT).as_uri())
        assert "(newest dead letter 11:30 UTC, 17:00 local)" in tab.run("document.querySelector('h1').textContent")
    finally:
        tab.send("Emulation.setTimezoneOverride", timezoneId="")


@pytest.mark.parametrize("kind", ORDINARY)
def test_a_page_without_a_script_tells_the_same(site: Site, tab: Browser, kind: str) -> None:
    words = "document.querySelector('main').innerText.replace(/\\s+/g, ' ')"
    said = []
    for disabled in (True, False):
        tab.send("Emulation.setScriptExecutionDisabled", value=disabled)
        try:
            tab.open((site.directory / KINDS[kind]).as_uri())
        finally:
            tab.send("Emulation.setScriptExecutionDisabled", value=False)
        if not disabled:  # what only a script can do, and the age of the page
            tab.run(
                "document.querySelectorAll('button, .tools, .pager, #page-age').forEach((one) => "
                "one.closest('th') ? one.replaceWith(one.textContent) : one.remove())"
            )
        tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        said.append(tab.run(words))
        assert tab.run("document.querySelectorAll('main button').length") == 0 or disabled
        if disabled:
            assert (
                tab.run("[...document.querySelectorAll('button')].filter((one) => one.checkVisibility()).length") == 0
            )
    assert said[0] == said[1]


def test_a_served_site_follows_the_data(tmp_path: Path, tab: Browser) -> None:
    settings = sites.filled(load(warehouse=str(tmp_path / "warehouse"), landing=str(tmp_path / "landing")))
    command = [sys.executable, "-c", "from pipelines.cli import main; main()", "report", "--serve", "--port", "0"]
    command += ["--every", "0.5", "--warehouse", settings.warehouse, "--landing", settings.landing]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        front = server.stdout.readline().strip()
        assert front.startswith("http://127.0.0.1:")
        # A page looks every five seconds whether it was built again; here it looks ten times as often.
        often = "(() => { const every = setInterval; window.setInterval = (act, wait) => every(act, wait / 10); })()"
        told = tab.send("Page.addScriptToEvaluateOnNewDocument", source=often)
        tab.open(front)
        opened, new = (
            "document.querySelectorAll('#incidents details').length",
            incident(7, original_topic="fresh-topic"),
        )
        before = tab.run(opened)
        tab.run("window.stays = true")
        store(settings, "gold.dlq_incidents", new)
        assert tab.until("document.body.textContent.includes('fresh-topic')")  # the page loaded itself anew
        assert not tab.run("Boolean(window.stays)")
        assert tab.run(opened) >= before
        tab.run("document.querySelector('details').open = true; window.stays = true")
        store(settings, "gold.dlq_incidents", incident(8, original_topic="fresher-topic"))
        assert tab.until("!document.getElementById('changed').hidden")  # somebody reads: it only says so
        assert tab.run("window.stays")
        tab.run("document.querySelector('#changed button').click()")
        assert tab.until("document.body.textContent.includes('fresher-topic')")
        assert (tab.errors, tab.dialogs) == ([], [])
        tab.send("Page.removeScriptToEvaluateOnNewDocument", identifier=told["identifier"])
        server.send_signal(signal.SIGTERM)
        assert server.wait(15) == 0


def test_a_picture_shows_the_upper_part_of_a_page(site: Site, tmp_path: Path) -> None:
    picture = tmp_path / "pictures" / "front.png"
    screenshots.take(site.directory / "index.html", picture)
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">II", content[16:24]) == (1200, 1500)
    assert len(content) > 20_000  # a page, not an empty window


def test_without_a_page_no_picture_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AFTERLOG_WAREHOUSE", str(tmp_path))
    assert screenshots.main() == 2
    assert "run `make demo` first" in capsys.readouterr().err
