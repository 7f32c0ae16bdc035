"""What a site tells of a warehouse, and its pages as a browser reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from html.parser import HTMLParser
from typing import Any

from pipelines.settings import Settings
from pipelines.settings.payloads import Mask
from pipelines.settings.runs import Report
from pipelines.site import content, pages, reading
from pipelines.site.content import Content
from pipelines.warehouse.tables import Warehouse
from tests.testing.deliveries import store
from tests.testing.sites import NOW


def gathered(settings: Settings) -> Content:
    return reading.gather(Warehouse(settings), now=NOW)


def written(settings: Settings) -> Mapping[str, str]:
    """All pages, by path."""
    return {page.path: page.text() for page in pages.pages(gathered(settings))}


class Page(HTMLParser):
    """The links, attributes and elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.attributes: set[str] = set()
        self.elements: list[str] = []
        self.data: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_data(self, data: str) -> None:
        self.data.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.data).split())


def dead_letters(settings: Settings, *ages: timedelta) -> None:
    times = [NOW - age for age in ages]
    store(
        settings, "bronze.dlq_records", *({"cluster": "default", "timestamp": at, "_ingested_at": at} for at in times)
    )


def light(settings: Settings, **more: Any) -> content.Light:
    feeds = [replace(feed, **more) if feed.name == "dlq" else feed for feed in feeds_of(settings)]
    return reading.gather(Warehouse(settings), feeds=feeds, now=NOW).light


def feeds_of(settings: Settings, now: datetime = NOW) -> list[Any]:
    from pipelines.run.newest import of_feeds, silence
    from pipelines.site.quality import Feed

    warehouse = Warehouse(settings)
    return [Feed(feed, silence(warehouse, feed)) for feed in of_feeds(warehouse, now)]


def with_masks(settings: Settings, *masks: dict[str, Any], payloads: bool = True) -> Settings:
    more = {"report": Report(payloads=payloads), "privacy": tuple(Mask(**mask) for mask in masks)}
    return settings.model_copy(update=more)
