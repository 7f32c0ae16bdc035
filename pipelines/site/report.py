"""Content -> a directory of static pages, and Data Docs beside them; what did not change is not written again."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

from expectations.replays import TABLES as REPLAYS
from expectations.text import visible
from pipelines import moments
from pipelines.commands.incidents import front
from pipelines.commands.incidents.reading import LANDED
from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.run.contracts import contracts
from pipelines.run.freshness import Freshness, freshness
from pipelines.settings import SchemaFile, Settings, located
from pipelines.site import addresses, environment, news, pages, reading
from pipelines.site.content import ALONE, Content, Other, Siblings
from pipelines.site.environment import DATA_DOCS
from pipelines.site.pages import Page
from pipelines.site.parts import digest_of
from pipelines.site.quality import Feed, feeds_of, uncommitted
from pipelines.stores.directory import replace_text
from pipelines.warehouse import actions, progress
from pipelines.warehouse.erased import SHOWN
from pipelines.warehouse.tables import Warehouse

HEX_DIGITS = 12
FRESH_SECONDS = 120  # a page that is older says so
MADE, DOCUMENTED, CLUSTER = ".made.json", ".documented.json", ".cluster.json"


def current(warehouse: Warehouse, behind: Sequence[Freshness], feeds: Sequence[Feed] | None = None) -> Path | None:
    """Return the front if the site shows the present state already; None if it must be built. This needs no session.

    Numbers of the last hour or day change with time, so an old site must be built, too.
    """
    page = warehouse.settings.reports() / addresses.FRONT
    if not warehouse.opens_tables or not page.exists():
        return None
    try:
        noted = warehouse.settings.reports() / SHOWN
        shown = noted.read_text(encoding="utf-8")
        if abs(moments.now().timestamp() - noted.stat().st_mtime) > FRESH_SECONDS:
            return None
    except FileNotFoundError:
        return None
    return page if shown == _state(warehouse, behind, feeds_of(warehouse) if feeds is None else feeds) else None


def build(
    warehouse: Warehouse,
    behind: Sequence[Freshness] | None = None,
    feeds: Sequence[Feed] | None = None,
    content: Content | None = None,
    siblings: Siblings = ALONE,
) -> Path:
    """Build the site and Data Docs in the reports' directory; return the front.

    Where only Spark opens the warehouse, this needs a session. How far tables are ``behind``, the state of ``feeds``
    and the ``content`` are looked up if not given.

    Raises EnvironmentLacking: the directory cannot be written. UsageError: it has the site of another cluster.
    """
    settings = warehouse.settings
    directory = settings.reports()
    try:
        _claim(directory, warehouse.cluster)
        behind = freshness(warehouse) if behind is None else behind
        feeds = feeds_of(warehouse) if feeds is None else feeds
        state = _state(warehouse, behind, feeds)
        _document(Path(os.path.normpath(directory / siblings.above)), settings.report.keep_runs)
        content = reading.gather(warehouse, behind, feeds) if content is None else content
        write(directory, content, siblings)
        news.keep(directory, content)
        replace_text(directory / SHOWN, state)
    except OSError as error:
        raise EnvironmentLacking(
            f"The reports cannot be written to {directory} ({error.strerror}): "
            f"free some space, fix its permissions or set [report] directory."
        ) from None
    return directory / addresses.FRONT


def siblings_of(warehouse: Warehouse, own: Warehouse) -> Siblings:
    """Return what the pages of a cluster tell of the others, also of those that ``--cluster`` leaves out."""
    above = "../" * len(Path(own.settings.site).parts)
    others = []
    for settings in warehouse.settings.of_every_cluster():
        if settings.cluster != own.cluster:
            top = json.loads(front.top(Warehouse(settings, own.session), "json").result)
            site = f"{settings.site}/" if settings.site else ""
            others.append(Other(settings.cluster, f"{above}{site}{addresses.FRONT}", top["sentence"]))
    return Siblings(tuple(others), above)


def _claim(directory: Path, cluster: str) -> None:
    """Note whose site a directory has; raises UsageError: it is another cluster's, whose names can be the same."""
    note = directory / CLUSTER
    try:
        known = json.loads(note.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        directory.mkdir(parents=True, exist_ok=True)
        replace_text(note, json.dumps(cluster), durable=False)
        return
    if known != cluster:
        raise UsageError(
            f"{directory} has the pages of cluster '{visible(str(known))}', where groups and topics can have the same "
            f"names: set [report] directory to one of its own for cluster '{visible(cluster)}'."
        )


def _document(directory: Path, keep_runs: int) -> None:
    """Render the results of gates as Data Docs, unless they show these already: Great Expectations takes seconds."""
    site, note = directory / DATA_DOCS, directory / DOCUMENTED
    results = sorted((directory / "gx").glob("*"))
    kept = {table.name: sorted(run.name for run in table.glob("*.json"))[-keep_runs:] for table in results}
    state = json.dumps([version("great_expectations"), environment.version(), keep_runs, kept])
    if (site / "index.html").is_file() and note.is_file() and note.read_text(encoding="utf-8") == state:
        return
    from expectations import docs

    docs.build_docs(directory / "gx", site, keep_runs)
    replace_text(note, state, durable=False)


def write(directory: Path, content: Content, siblings: Siblings = ALONE) -> list[str]:
    """Write the pages that changed, each in one step, the front last; return the paths of those written.

    No page is ever removed: its address may be in a chat.
    """
    made = _made(directory)
    written = []
    for page in sorted(pages.pages(content, directory, siblings), key=lambda page: page.path == addresses.FRONT):
        target = directory / page.path
        digest = _digest(page)
        if digest is not None and made.get(page.path) == digest and target.exists():
            continue
        text = page.text()
        if not _holds(target, text):
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_text(target, text, durable=page.path == addresses.FRONT)
            written.append(page.path)
        if digest is not None:
            made[page.path] = digest
    replace_text(directory / MADE, json.dumps(made))
    return written


def _made(directory: Path) -> dict[str, str]:
    """Return what the pages that are there were made from; nothing if that is not known."""
    try:
        made = json.loads((directory / MADE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return made if isinstance(made, dict) else {}


def _digest(page: Page) -> str | None:
    """Return a hash of all that a page depends on; None for a page that is always made."""
    if page.about is None:
        return None
    return digest_of([environment.version(), page.about])


def _holds(target: Path, text: str) -> bool:
    try:
        return target.read_bytes() == text.encode()
    except FileNotFoundError:
        return False


def _state(warehouse: Warehouse, behind: Sequence[Freshness], feeds: Sequence[Feed]) -> str:
    """Return all that the site depends on: versions of tables, what is unread and blocked, actions, how many runs.

    The ages of feeds count in whole hours, and until when topics were read in ten minutes: the site is built again when
    one of them changes.
    """
    if not warehouse.opens_tables:
        return ""
    names = [*(contract.table for contract in contracts()), *REPLAYS]
    versions = {name: warehouse.last_version(name) for name in names}
    ages = [[feed.name, feed.state, feed.newest.used, _hours(feed.newest.age)] for feed in feeds]
    acted = actions.names(warehouse)
    state: list[Any] = [environment.version(), versions, [asdict(entry) for entry in behind], warehouse.cluster]
    read = {topic: at.timestamp() // 600 for topic, at in progress.read_until(warehouse, LANDED).items()}
    settings = warehouse.settings
    state += [
        settings.report.keep_runs,
        settings.report.url,
        settings.retention.pages,
        _shown(settings),
        uncommitted(settings),
        ages,
        acted,
        read,
    ]
    state += [team.model_dump(mode="json") for team in settings.teams]
    return json.dumps(state)


def _shown(settings: Settings) -> list[Any]:
    """Return the settings that decide what pages show of dead letters."""
    own = [profile.model_dump(mode="json") for profile in settings.dlq.profile] if settings.privacy else []
    masks = [mask.model_dump(mode="json") for mask in settings.privacy]
    payloads = settings.report.payloads
    schemas = [[schema.model_dump(mode="json"), _content_of(schema)] for schema in settings.schemas if payloads]
    return [payloads, masks, own, schemas, settings.privacy_key.hash_key_env, _mark_of_the_key(settings)]


def _content_of(schema: SchemaFile) -> str | None:
    """Return a hash of a schema file's content; None if it cannot be read."""
    try:
        return hashlib.sha256(located(schema.file).read_bytes()).hexdigest()
    except OSError:
        return None


def _mark_of_the_key(settings: Settings) -> str | None:
    """Return what changes with the key of hashes and tells no more of it than a hash on a page; None without a key."""
    key = os.environ.get(settings.privacy_key.hash_key_env or "")
    if not key or all(mask.do != "hash" for mask in settings.privacy):
        return None
    return hmac.new(key.encode("utf-8", "surrogateescape"), b"", "sha256").hexdigest()[:HEX_DIGITS]


def _hours(age: timedelta | None) -> int | None:
    return None if age is None else age // timedelta(hours=1)


__all__ = ["DATA_DOCS", "build", "current", "feeds_of", "write"]
