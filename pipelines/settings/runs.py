"""Settings of runs: gates, the wait for another writer, the silence of feeds, reports."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from pipelines.settings.feeds import LANDING_DIRECTORIES
from pipelines.settings.section import Section, Share


class Gate(Section):
    """When a rule breaks a gate: at least ``min_failures`` rows, and a share above ``tolerance`` of the rows, fail."""

    tolerance: Share | None = None
    min_failures: Annotated[int, Field(ge=1)] | None = None


class Silence(Section):
    """When a feed is silent: its newest record is older than a limit.

    ``after_hours`` has the limit of a feed, by its landing directory. A steady feed without one has the limit of
    ``times_longest_pause`` times its longest pause, but at least ``least_hours``.
    """

    times_longest_pause: Annotated[float, Field(ge=1.0, le=1_000.0)] = 3.0
    least_hours: Annotated[float, Field(gt=0.0, le=1_000_000.0)] = 1.0
    after_hours: dict[str, Annotated[float, Field(gt=0.0, le=1_000_000.0)]] = Field(default_factory=dict)

    @field_validator("after_hours")
    @classmethod
    def _check_feeds(cls, hours: dict[str, float]) -> dict[str, float]:
        if unknown := sorted(hours.keys() - set(LANDING_DIRECTORIES)):
            raise ValueError(f"there is no feed {unknown[0]}; name one of {', '.join(LANDING_DIRECTORIES)}")
        return hours


class Lock(Section):
    """How long a command that writes waits for another writer on the same warehouse.

    On S3 a writer that stopped to renew its lease for ``lease_seconds`` can be taken over.
    """

    wait_seconds: Annotated[float, Field(ge=0.0)] = 60.0
    lease_seconds: Annotated[float, Field(ge=2.0, le=3_600.0)] = 30.0


class Replay(Section):
    """How dead letters are replayed.

    ``rules`` is the file of remediation rules (None: conf/remediation.toml). A record that died after more than
    ``max_replays`` replays is not eligible. ``rate`` is how many records a second a run produces (None: as fast as it
    can), in transactions of at most ``batch`` records. A run pauses if its group dead-letters more than the share
    ``most_deaths`` of them again. ``by_rules`` lets the DAG ``replay`` plan what the rules choose, each time that
    ``schedule`` (cron) says.
    """

    rules: Annotated[str, Field(min_length=1)] | None = None
    max_replays: Annotated[int, Field(ge=0, le=1_000)] = 1
    most_records: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    rate: Annotated[float, Field(gt=0.0)] | None = None
    batch: Annotated[int, Field(ge=1, le=100_000)] = 500
    most_deaths: Share = 0.5
    by_rules: bool = False
    schedule: str | None = None


class Metrics(Section):
    """Where metrics are written after each run, in Prometheus' text format: a ``file``, whose name ends with ``.prom``.

    The textfile collector of the node exporter reads such files.
    """

    file: str | None = None

    @field_validator("file")
    @classmethod
    def _check_file(cls, file: str | None) -> str | None:
        if file is not None and not file.endswith(".prom"):
            raise ValueError("the name of the file must end with .prom")
        return file


PUBLISHED = ("file", "s3", "s3a", "gs", "az", "abfs", "abfss")
"""Schemes of URIs where the pages can be published."""


class Report(Section):
    """Where reports are written (default ``<warehouse>/_reports``) and how many runs Data Docs keep.

    The pages are also copied to ``publish``, a directory or a URI of an object store. ``url`` is where people reach
    them over HTTP: addresses of pages are below it. ``payloads`` shows sample records on pages of open incidents,
    masked as ``[[privacy]]`` says.
    """

    directory: str | None = None
    publish: Annotated[str, Field(min_length=1)] | None = None
    url: str | None = None
    payloads: bool = False
    keep_runs: Annotated[int, Field(ge=1)] = 20

    @field_validator("publish")
    @classmethod
    def _check_publish(cls, target: str | None) -> str | None:
        scheme, mark, rest = (target or "").partition("://")
        if mark and scheme not in PUBLISHED:
            raise ValueError(f"write a directory, or a URI that begins with one of {', '.join(PUBLISHED)}")
        if mark and ("?" in rest or "#" in rest or (scheme in ("s3", "s3a", "gs") and "@" in rest)):
            raise ValueError("the URI must not have credentials or ? or #; credentials come from the environment")
        return target

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        try:
            parts = urlsplit(url)
            is_one = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_one = None
        if not is_one or parts.query or parts.fragment or not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError("write an address like https://afterlog.example.com/reports, without ? and #")
        if parts.username is not None or parts.password is not None:
            raise ValueError("an address that everybody sees must not have a user or a password")
        return url.rstrip("/") + "/"

    def address_of(self, page: str) -> str | None:
        """Return the address of a page, given its path below the reports' directory; None if ``url`` is not set."""
        return None if self.url is None else self.url + page
