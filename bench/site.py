"""How fast the site is built, and how fast its pages answer in a browser, with many incidents and applications."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

from local import screenshots
from pipelines.settings import Settings
from pipelines.site import reading, report
from pipelines.warehouse.tables import Warehouse
from tests.testing import browser, sites
from tests.testing.browser import Browser
from tests.testing.deliveries import store
from tests.testing.sites import HOUR, NOW

VERDICTS = ("POISON_PILL", "KEY_LOCAL", "SYSTEMIC", "UNDETERMINED")
SEVERITIES = ("critical", "high", "medium", "low")
WAYS = {
    "search": "document.querySelector('input[type=search]').value = '{word}';"
    " document.querySelector('input[type=search]').dispatchEvent(new Event('input'))",
    "sort": "document.querySelectorAll('th button')[3].click()",
    "next page": "document.querySelector('[data-page=after]').click()",
}
"""By name, what a person does on a page with a table, in JavaScript."""
SETTLED = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))"
ATTEMPTS = 5


def fill(settings: Settings, incidents: int, applications: int) -> None:
    """Store incidents of as many groups as there are applications, which are Streams applications in a chain."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number in range(incidents):
        group_number, last = number % max(applications, 1), NOW - timedelta(minutes=7 * number)
        columns: dict[str, Any] = {
            "original_topic": f"topic-{group_number}",
            "consumer_group": f"group-{group_number}",
            "last_at": last,
        }
        judged = {"verdict": VERDICTS[number % 4], "severity": SEVERITIES[number % 5 % 4]}
        rows["gold.dlq_incidents"].append(sites.incident(number, **columns, **judged))
    for group_number in range(applications):
        columns = {"original_topic": f"topic-{group_number}", "consumer_group": f"group-{group_number}"}
        rows["gold.dlq_summary"] += [
            sites.hour(NOW - (1 + ago) * HOUR, 5 + group_number % 7, **columns) for ago in range(24)
        ]
        for table, few in sites.rows_of_application(
            f"app-{group_number}", f"topic-{group_number}", f"topic-{group_number + 1}"
        ).items():
            rows[table] += few
    for table, many in rows.items():
        store(settings, table, *many)


def measured(settings: Settings, scratch: Path, incidents: int, applications: int) -> dict[str, tuple[float, str]]:
    """Return figures by name, with their unit: seconds of two builds, milliseconds of what a person does.

    The second build has nothing new to tell.
    """
    fill(settings, incidents, applications)
    figures: dict[str, tuple[float, str]] = {}
    for name in ("first build", "next build, nothing new"):
        began = time.perf_counter()
        warehouse = Warehouse(settings)
        front = report.build(warehouse, content=reading.gather(warehouse, now=NOW))
        figures[name] = (time.perf_counter() - began, "s")
    figures["pages"] = (float(sum(1 for _ in front.parent.rglob("*.html"))), "pages")
    if screenshots.browser() is None:
        return figures
    with browser.browser(scratch) as tab:
        for page, word in (("incidents.html", "group-7"), ("places.html", "app-4")):
            address = (front.parent / page).as_uri()
            figures[f"{page}: open"] = (_milliseconds(lambda address=address: tab.open(address)), "ms")  # type: ignore[misc]
            for way, script in WAYS.items():
                if way != "next page" or tab.run("!document.querySelector('[data-page=after]').disabled"):
                    figures[f"{page}: {way}"] = (_of(tab, address, script.format(word=word)), "ms")
        figures["index.html: open"] = (_milliseconds(lambda: tab.open(front.as_uri())), "ms")
        if tab.errors:
            raise RuntimeError(f"the pages have errors: {tab.errors[:3]}")
    return figures


def _milliseconds(act: Callable[[], object]) -> float:
    spent = []
    for _ in range(ATTEMPTS):
        began = time.perf_counter()
        act()
        spent.append(1_000 * (time.perf_counter() - began))
    return median(spent)


def _of(tab: Browser, address: str, script: str) -> float:
    """Return the milliseconds from an action on a page that was just opened to its next picture, by its clock."""
    spent = []
    for _ in range(ATTEMPTS):
        tab.open(address)
        before = tab.run("document.querySelector('main').innerHTML")
        spent.append(
            tab.run(
                f"(async () => {{ const began = performance.now(); {script}; await {SETTLED};"
                " return performance.now() - began; })()"
            )
        )
        if tab.run("document.querySelector('main').innerHTML") == before:
            raise RuntimeError(f"nothing changed on {address}: {script}")
    return median(spent)
