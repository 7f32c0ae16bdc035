"""`afterlog describe` over gold tables that are written without Spark: real Delta, the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from arro3.core import Array, DataType, Table, list_array
from deltalake import write_deltalake

from pipelines import cli
from pipelines.commands import describe
from pipelines.settings import ROOT, Settings
from pipelines.topology import diff as topology_diff
from pipelines.topology import drawing
from pipelines.topology.model import Topology
from pipelines.warehouse.tables import Warehouse

AT = datetime(2026, 11, 21, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)

CURRENT = {
    "cluster": "string",
    "group_id": "string",
    "revision": "int",
    "topology_hash": "string",
    "topology_epoch": "int",
    "group_topology_epoch": "int",
    "status": "int",
    "status_name": "string",
    "health": "string",
    "sentence": "string",
    "last_pushed_at": "timestamp",
    "description": "string",
    "deleted_at": "timestamp",
    "lost_at": "timestamp",
    "defects": "array<string>",
}
REVISIONS = {
    "cluster": "string",
    "group_id": "string",
    "revision": "int",
    "source": "string",
    "topology_hash": "string",
    "topology_epoch": "int",
    "topology_epochs": "array<int>",
    "accepted_at": "timestamp",
    "last_accepted_at": "timestamp",
    "replaced_at": "timestamp",
    "member_id": "string",
    "push_count": "bigint",
    "defects": "array<string>",
    "description": "string",
}
EVENTS = {
    "cluster": "string",
    "group_id": "string",
    "connection": "string",
    "correlation_id": "bigint",
    "error_code": "int",
}
PUSHES = {**EVENTS, "pushed_at": "timestamp"}
STATUSES = {**EVENTS, "described_at": "timestamp", "status": "int", "topology_hash": "string"}
DELETIONS = {**EVENTS, "deleted_at": "timestamp"}
ARROW = {
    "string": DataType.string(),
    "int": DataType.int32(),
    "bigint": DataType.int64(),
    "timestamp": DataType.timestamp("us", tz="UTC"),
}


def wire(source: str = "orders", *stores: str) -> dict[str, Any]:
    """A topology that reads one topic, in the wire schema."""

    def node(name: str, kind: int, **given: Any) -> dict[str, Any]:
        empty = {"sourceTopics": [], "sinkTopic": None, "stores": [], "successors": []}
        return {"name": name, "nodeType": kind, **empty, **given}

    nodes = [
        node("source", 1, sourceTopics=[source], successors=["count"]),
        node("count", 2, stores=list(stores), successors=["sink"]),
        node("sink", 3, sinkTopic="counts"),
    ]
    return {"subtopologies": [{"subtopologyId": "0", "nodes": nodes}], "globalStores": []}


def text(description: dict[str, Any]) -> str:
    """The topology as the command prints it."""
    return drawing.text(Topology.parsed(json.dumps(description)))


def write(settings: Settings, table: str, columns: dict[str, str], *rows: dict[str, Any]) -> None:
    def column(name: str, kind: str) -> Array:
        values = [row.get(name) for row in rows]
        if kind == "timestamp":
            micros = [None if value is None else int(value.timestamp() * 1_000_000) for value in values]
            return Array(micros, ARROW["bigint"]).cast(ARROW[kind])
        if kind.startswith("array"):
            lists = [value or [] for value in values]
            offsets = [sum(map(len, lists[:index])) for index in range(len(lists) + 1)]
            elements = [element for list_ in lists for element in list_]
            return list_array(Array(offsets, ARROW["int"]), Array(elements, ARROW[kind[6:-1]]))
        return Array(values, ARROW[kind])

    made = Table.from_pydict({name: column(name, kind) for name, kind in columns.items()})
    place = Warehouse(settings).location(table)
    write_deltalake(place, made, mode="append", configuration={"delta.enableChangeDataFeed": "true"})


def write_events(
    settings: Settings,
    pushes: Sequence[dict[str, Any]] = (),
    statuses: Sequence[dict[str, Any]] = (),
    deletions: Sequence[dict[str, Any]] = (),
) -> None:
    """The exchanges with group `g`, which say when it was gone."""

    def of_group(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        known = {"cluster": "default", "group_id": "g", "connection": "1", "error_code": 0}
        return [{**known, "correlation_id": number, **item} for number, item in enumerate(events)]

    write(settings, describe.PUSHES, PUSHES, *of_group(pushes))
    write(settings, describe.STATUSES, STATUSES, *of_group(statuses))
    write(settings, describe.DELETIONS, DELETIONS, *of_group(deletions))


def current(group: str = "orders-app", **changes: Any) -> dict[str, Any]:
    """A group whose accepted revision is its second."""
    return {
        "cluster": "default",
        "group_id": group,
        "revision": 2,
        "topology_hash": "b",
        "topology_epoch": 1,
        "group_topology_epoch": 1,
        "status": 3,
        "status_name": "AVAILABLE",
        "health": "OK",
        "sentence": "What an operator needs.",
        "last_pushed_at": AT,
        "description": json.dumps(wire("orders", "counts-store")),
        **changes,
    }


def accepted(group: str, revision: int, description: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A revision with epoch ``revision`` - 1, accepted ``revision`` hours after AT and replaced an hour later."""
    at = AT + revision * HOUR
    return {
        "cluster": "default",
        "group_id": group,
        "revision": revision,
        "source": "pushed",
        "topology_epoch": revision - 1,
        "topology_epochs": [revision - 1],
        "accepted_at": at,
        "last_accepted_at": at,
        "replaced_at": at + HOUR,
        "push_count": 1,
        "description": json.dumps(description),
        **changes,
    }


class Said(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture(autouse=True)
def _settings_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AFTERLOG_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def afterlog(settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `afterlog describe` in this process."""

    def run(*given: str) -> Said:
        places = ["--warehouse", settings.warehouse, "--landing", settings.landing]
        monkeypatch.setattr(sys, "argv", ["afterlog", "describe", *given, *places])
        with pytest.raises(SystemExit) as end:
            cli.main()
        code = end.value.code or 0
        assert isinstance(code, int)
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def warehouse(settings: Settings) -> Settings:
    """Three revisions of `orders-app`, other groups, and another cluster."""
    history = [
        accepted(
            "orders-app", 2, wire("orders", "counts-store"), topology_epochs=[1, 2], defects=["dangling successor"]
        ),
        accepted("orders-app", 3, wire("purchases", "counts-store"), replaced_at=None, topology_epochs=[2]),
        accepted("orders-app", 1, wire("orders")),
    ]
    write(settings, describe.REVISIONS, REVISIONS, *history[:2])
    write_events(settings)
    beside = [
        accepted("other", 9, wire("other")),
        accepted("described", 1, wire("described"), topology_epochs=[]),
        accepted("another", 1, wire("another")),
        *(accepted("orders-app", revision, wire("second"), cluster="second") for revision in (1, 4)),
    ]
    write(settings, describe.REVISIONS, REVISIONS, history[2], *beside)
    write(
        settings,
        describe.CURRENT,
        CURRENT,
        current(revision=3, description=json.dumps(wire("purchases", "counts-store"))),
        current("other", description=json.dumps(wire("other"))),
        current(cluster="second", revision=1, description=json.dumps(wire("second"))),
    )
    return settings


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        pytest.param({}, False, id="healthy"),
        pytest.param({"defects": ["duplicate node"]}, True, id="healthy with defects"),
        pytest.param({"health": "REJECTED"}, True, id="a later push was rejected"),
        pytest.param({"health": "CONFLICT"}, True, id="members disagree"),
        pytest.param({"health": "STALE"}, True, id="stale"),
        pytest.param({"status": None}, False, id="never described, but accepted"),
    ],
)
def test_an_available_topology_is_printed(
    settings: Settings, afterlog: Command, changes: dict[str, Any], remark: bool
) -> None:
    write(settings, describe.CURRENT, CURRENT, current(**changes))

    said = afterlog("--group", "orders-app")

    assert said.code == 0
    assert said.out == text(wire("orders", "counts-store"))
    assert "source (topics: [orders])" in said.out
    assert said.err == ("afterlog: What an operator needs.\n" if remark else "")


NOT_STORED = "No topology description has been recorded for group 'orders-app'."
FAILED = "The broker failed to retrieve the topology description for group 'orders-app' (check broker logs)."
LANDED_NOWHERE = "The broker has a topology description for group 'orders-app', but none has landed here."
DELETED = "Group 'orders-app' is gone: it was deleted, or found missing, at 2026-11-21T02:00:00.000Z."
LOST = "The broker has lost the topology description for group 'orders-app': it was found missing at "


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"health": "NOT_PUSHED", "status": 1, "description": None}, NOT_STORED, id="not stored"),
        pytest.param({"health": "NOT_PUSHED", "status": 1}, NOT_STORED, id="not stored, but known from before"),
        pytest.param({"health": "NOT_PUSHED", "status": None, "description": None}, NOT_STORED, id="never described"),
        pytest.param({"health": "PLUGIN_ERROR", "status": 2}, FAILED, id="plugin error"),
        pytest.param({"health": "STALE", "status": 3, "description": None}, LANDED_NOWHERE, id="landed nowhere"),
        pytest.param({"health": "DELETED", "status": 3, "deleted_at": AT}, DELETED, id="deleted"),
        pytest.param(
            {"health": "LOST", "status": 1, "lost_at": AT}, f"{LOST}2026-11-21T02:00:00.000Z.", id="lost by the plugin"
        ),
    ],
)
@pytest.mark.parametrize("revision", [pytest.param(4, id="accepted before"), pytest.param(None, id="never accepted")])
def test_what_the_broker_would_refuse_is_refused(
    settings: Settings, afterlog: Command, changes: dict[str, Any], message: str, revision: int | None
) -> None:
    write(settings, describe.CURRENT, CURRENT, current(**{"revision": revision, **changes}))
    remarks = "afterlog: What an operator needs.\n"
    if revision:
        remarks += "afterlog: --revision 4 still shows what was accepted last.\n"

    assert afterlog("--group", "orders-app") == (1, f"{message}\n", remarks)

    as_json = afterlog("--group", "orders-app", "--format", "json")
    assert (as_json.code, as_json.err) == (1, remarks)
    assert json.loads(as_json.out) == {
        "groupId": "orders-app",
        "topologyDescription": None,
        "message": message,
        "health": changes["health"],
        "revision": revision,
    }
    for form in ("svg", "mermaid"):
        assert afterlog("--group", "orders-app", "--format", form) == (1, "", f"afterlog: {message}\n{remarks}")


@pytest.mark.parametrize("selector", [(), ("--revision", "1"), ("--at", "2026-11-21")], ids=" ".join)
def test_a_group_never_heard_of(warehouse: Settings, afterlog: Command, selector: tuple[str, ...]) -> None:
    said = afterlog("--group", "orders", *selector)

    assert said == (
        1,
        f"Nothing is known of group 'orders' in cluster 'default': land the request log of its brokers in "
        f"{warehouse.landing}/streams-requests/ and run `afterlog run --feed topology`. Did you mean 'orders-app'?\n",
        "",
    )
    facts = json.loads(afterlog("--group", "orders", "--format", "json", *selector).out)
    assert (facts["groupId"], facts["health"], facts["revision"]) == ("orders", None, None)


@pytest.mark.parametrize("selector", [(), ("--revision", "1"), ("--diff", "1", "2")], ids=" ".join)
def test_a_warehouse_without_the_tables(settings: Settings, afterlog: Command, selector: tuple[str, ...]) -> None:
    Path(settings.warehouse).mkdir()
    said = afterlog("--group", "orders-app", *selector)

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("afterlog: There is no table gold.topology_")
    assert f"in {settings.warehouse} yet: `afterlog run` creates it." in said.err


def test_a_group_is_one_of_its_cluster(warehouse: Settings, afterlog: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_CLUSTER", "second")

    assert afterlog("--group", "orders-app") == (0, text(wire("second")), "")
    assert "in cluster 'second'" in afterlog("--group", "other").out


THIRD = "afterlog: Revision 3: accepted at 2026-11-21T05:00:00.000Z under epoch 2.\n"
SECOND = (
    "afterlog: Revision 2: accepted at 2026-11-21T04:00:00.000Z under epoch 1, replaced at 2026-11-21T05:00:00.000Z.\n"
    "afterlog: Its defects: dangling successor.\n"
)
FIRST = (
    "afterlog: Revision 1: accepted at 2026-11-21T03:00:00.000Z under epoch 0, replaced at 2026-11-21T04:00:00.000Z.\n"
)


@pytest.mark.parametrize(
    ("selector", "shown", "epoch", "remarks"),
    [
        pytest.param(("--revision", "1"), wire("orders"), 0, FIRST, id="revision"),
        pytest.param(("--revision", "2"), wire("orders", "counts-store"), 1, SECOND, id="revision with defects"),
        pytest.param(("--revision", "3"), wire("purchases", "counts-store"), 2, THIRD, id="the latest revision"),
        pytest.param(("--epoch", "1"), wire("orders", "counts-store"), 1, SECOND, id="epoch"),
        pytest.param(("--epoch", "2"), wire("purchases", "counts-store"), 2, THIRD, id="epoch of two revisions"),
        pytest.param(("--at", "2026-11-21T03:59:59.999"), wire("orders"), 0, FIRST, id="until it was replaced"),
        pytest.param(("--at", "2026-11-21T03:00:00Z"), wire("orders"), 0, FIRST, id="when it was accepted"),
        pytest.param(("--at", "2026-11-21T06:00+02:00"), wire("orders", "counts-store"), 1, SECOND, id="another zone"),
        pytest.param(("--at", "2026-11-22"), wire("purchases", "counts-store"), 2, THIRD, id="a date"),
    ],
)
def test_a_revision_of_before(
    warehouse: Settings, afterlog: Command, selector: tuple[str, ...], shown: dict[str, Any], epoch: int, remarks: str
) -> None:
    assert afterlog("--group", "orders-app", *selector) == (0, text(shown), remarks)

    as_json = afterlog("--group", "orders-app", "--format", "json", *selector)
    assert json.loads(as_json.out) == {"groupId": "orders-app", "topologyEpoch": epoch, "topologyDescription": shown}
    assert (as_json.code, as_json.err) == (0, remarks)


def test_an_epoch_is_the_one_asked_for(settings: Settings, afterlog: Command) -> None:
    write(settings, describe.REVISIONS, REVISIONS, accepted("g", 1, wire(), topology_epochs=[0, 7], replaced_at=None))

    assert json.loads(afterlog("--group", "g", "--epoch", "7", "--format", "json").out)["topologyEpoch"] == 7


@pytest.mark.parametrize(
    ("group", "selector", "message"),
    [
        pytest.param(
            "orders-app",
            ("--revision", "4"),
            "Group 'orders-app' has no revision 4: there are revisions 1 to 3.",
            id="revision",
        ),
        pytest.param(
            "other", ("--revision", "1"), "Group 'other' has no revision 1: there is revision 9.", id="one revision"
        ),
        pytest.param(
            "orders-app",
            ("--epoch", "5"),
            "No topology of group 'orders-app' was accepted under epoch 5: there are epochs 0, 1, 2.",
            id="epoch",
        ),
        pytest.param(
            "other",
            ("--epoch", "5"),
            "No topology of group 'other' was accepted under epoch 5: there is epoch 8.",
            id="one epoch",
        ),
        pytest.param(
            "described",
            ("--epoch", "5"),
            "No topology of group 'described' was accepted under epoch 5: no epoch of the group is known.",
            id="no epoch",
        ),
        pytest.param(
            "orders-app",
            ("--at", "2026-11-21"),
            "At 2026-11-21T00:00:00.000Z no topology of group 'orders-app' had been accepted: "
            "the first, revision 1, was at 2026-11-21T03:00:00.000Z.",
            id="before the first",
        ),
        pytest.param(
            "orders-app",
            ("--diff", "1", "4"),
            "Group 'orders-app' has no revision 4: there are revisions 1 to 3.",
            id="difference",
        ),
    ],
)
def test_a_revision_that_is_not_there(
    warehouse: Settings, afterlog: Command, group: str, selector: tuple[str, ...], message: str
) -> None:
    assert afterlog("--group", group, *selector) == (1, f"{message}\n", "")

    as_json = json.loads(afterlog("--group", group, "--format", "json", *selector).out)
    assert (as_json["message"], as_json["revision"]) == (message, {"other": 9, "described": 1}.get(group, 3))


def test_a_group_without_revisions(settings: Settings, afterlog: Command) -> None:
    write(settings, describe.REVISIONS, REVISIONS, accepted("other", 1, wire()))
    write(settings, describe.CURRENT, CURRENT, current("g", revision=None, health="NOT_PUSHED", status=1))

    assert afterlog("--group", "g", "--revision", "1") == (
        1,
        "No topology description of group 'g' was ever accepted.\n",
        "afterlog: What an operator needs.\n",
    )


def test_after_its_deletion_a_group_has_no_topology(settings: Settings, afterlog: Command) -> None:
    deleted_at = AT + 3 * HOUR
    write(settings, describe.REVISIONS, REVISIONS, accepted("g", 1, wire(), replaced_at=None))
    write(settings, describe.CURRENT, CURRENT, current("g", revision=1, health="DELETED", deleted_at=deleted_at))
    write_events(settings, [{"pushed_at": AT + HOUR}], (), [{"deleted_at": deleted_at}])

    assert afterlog("--group", "g", "--at", "2026-11-21T04:59:59Z").out == text(wire())
    after = afterlog("--group", "g", "--at", "2026-11-21T05:00:00Z")
    assert (after.code, after.out) == (
        1,
        "Group 'g' is gone: it was deleted, or found missing, at 2026-11-21T05:00:00.000Z.\n",
    )
    assert "--revision 1 still shows what was accepted last." in after.err
    assert afterlog("--group", "g", "--revision", "1").out == text(wire())


def test_between_its_deletion_and_the_next_push_a_group_has_no_topology(settings: Settings, afterlog: Command) -> None:
    write(settings, describe.REVISIONS, REVISIONS, accepted("g", 1, wire(), replaced_at=None, push_count=2))
    write(settings, describe.CURRENT, CURRENT, current("g", revision=1, health="OK"))
    write_events(
        settings,
        [{"pushed_at": AT + hours * HOUR, "error_code": code} for hours, code in ((1, 0), (3.5, 69), (4, 0))],
        [
            {"described_at": AT + 3 * HOUR, "error_code": 69},
            {"described_at": AT + 3.2 * HOUR, "status": 1},
            {"described_at": AT + 5 * HOUR, "error_code": 69},
            {"described_at": AT + 6 * HOUR, "status": 3},
            {"described_at": AT + 7 * HOUR, "status": 3, "topology_hash": "a"},
        ],
        [{"deleted_at": AT + hours * HOUR, "error_code": code} for hours, code in ((1.5, 68), (2, 0), (2.5, 69))],
    )

    gone = "no topology of group 'g' had been accepted since it was deleted, or found missing, at 2026-11-21T"
    for hours, since in ((1, None), (1.9, None), (2, "04"), (3.9, "04"), (4, None), (5, "07"), (6.9, "07"), (7, None)):
        said = afterlog("--group", "g", "--at", (AT + hours * HOUR).isoformat())
        if since is None:
            assert (said.code, said.out) == (0, text(wire())), hours
        else:
            assert (said.code, gone + since in said.out) == (1, True), hours


@pytest.mark.parametrize("health", ["REJECTED", "STALE", "CONFLICT"])
@pytest.mark.parametrize("was_deleted", [False, True])
def test_what_was_accepted_stays_after_a_push_was_refused(
    settings: Settings, afterlog: Command, health: str, was_deleted: bool
) -> None:
    """The group is at another epoch than its description, so that a broker has none for it."""
    write(settings, describe.REVISIONS, REVISIONS, accepted("g", 1, wire(), replaced_at=None))
    write(settings, describe.CURRENT, CURRENT, current("g", revision=1, health=health, status=1))
    deletions = [{"deleted_at": AT + 2 * HOUR}] if was_deleted else []
    refused = {"pushed_at": AT + 3 * HOUR, "error_code": 42}
    write_events(settings, [{"pushed_at": AT + HOUR}, refused], (), deletions)

    now, then = afterlog("g"), afterlog("g", "--at", (AT + 4 * HOUR).isoformat())
    if was_deleted:
        assert (now.code, then.code, now.out) == (1, 1, NOT_STORED.replace("orders-app", "g") + "\n")
    else:
        assert (now.code, now.out) == (then.code, then.out) == (0, text(wire()))
        first = "Revision 1: accepted at 2026-11-21T03:00:00.000Z under epoch 0."
        remarks = ("What an operator needs.", "Shown is the last topology that is known.", first)
        assert now.err == "".join(f"afterlog: {remark}\n" for remark in remarks)


def test_how_one_revision_differs_from_another(warehouse: Settings, afterlog: Command) -> None:
    first, second = (Topology.parsed(json.dumps(item)) for item in (wire("orders"), wire("orders", "counts-store")))
    found = topology_diff.diff(first, second)

    as_text = afterlog("--group", "orders-app", "--diff", "1", "2")
    assert (as_text.code, as_text.out.rstrip("\n"), as_text.err) == (0, found.as_text().rstrip("\n"), "")
    assert "counts-store" in as_text.out
    as_json = afterlog("--group", "orders-app", "--diff", "1", "2", "--format", "json")
    assert (as_json.code, json.loads(as_json.out), as_json.err) == (0, found.as_json(), "")
    assert afterlog("--group", "orders-app", "--diff", "2", "1").out != as_text.out


def test_drawings(warehouse: Settings, afterlog: Command) -> None:
    drawn = Topology.parsed(json.dumps(wire("purchases", "counts-store")))

    mermaid, svg = (afterlog("--group", "orders-app", "--format", form) for form in ("mermaid", "svg"))

    assert (mermaid.code, mermaid.out.rstrip("\n")) == (0, drawing.mermaid(drawn).rstrip("\n"))
    assert (svg.code, svg.out.rstrip("\n")) == (0, drawing.svg(drawn, "orders-app, revision 3").rstrip("\n"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(("--revision", "1", "--epoch", "1"), "Give one of", id="revision and epoch"),
        pytest.param(("--epoch", "0", "--at", "2026-11-21"), "Give one of", id="epoch 0 and at"),
        pytest.param(("--revision", "1", "--diff", "1", "2"), "Give one of", id="revision and diff"),
        pytest.param(("--diff", "1", "2", "--format", "svg"), "text or json", id="a difference drawn"),
        pytest.param(("--diff", "1", "2", "--format", "mermaid"), "text or json", id="a difference as mermaid"),
        pytest.param(("--at", "someday"), "is no time", id="no time"),
        pytest.param(("--at", "2026-13-01"), "is no time", id="no date"),
        pytest.param(("--revision", "first"), "integer", id="no number"),
        pytest.param(("--format", "png"), "png", id="no format"),
    ],
)
def test_what_cannot_be_asked(warehouse: Settings, afterlog: Command, given: tuple[str, ...], said: str) -> None:
    answer = afterlog("--group", "orders-app", *given)

    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


@pytest.mark.parametrize(
    ("group", "shown"),
    [
        pytest.param("o'brien", "o'brien", id="quote"),
        pytest.param("' OR '1'='1", "' OR '1'='1", id="a quote that closes"),
        pytest.param('say "orders"', 'say "orders"', id="double quotes"),
        pytest.param("back\\slash", "back\\slash", id="backslash"),
        pytest.param("<b>-->", "<b>-->", id="markup"),
        pytest.param("two\nlines", "two\\nlines", id="newline"),
        pytest.param("\x1b[2Jcleared", "\\u001b[2Jcleared", id="control characters"),
        pytest.param("\u202egnp.exe", "\\u202egnp.exe", id="bidirectional"),
        pytest.param("größe 🦀", "größe 🦀", id="not ASCII"),
        pytest.param("--revision", "--revision", id="like an option"),
        pytest.param("x" * 300, "x" * 300, id="longer than file statistics"),
    ],
)
def test_names_are_hostile(settings: Settings, afterlog: Command, group: str, shown: str) -> None:
    write(settings, describe.CURRENT, CURRENT, current("other"), current("orders-app"))
    unknown = afterlog(f"--group={group}")
    assert (unknown.code, unknown.err) == (1, "")
    assert unknown.out.startswith(f"Nothing is known of group '{shown}' in cluster")

    write(settings, describe.CURRENT, CURRENT, current(group, status=1, health="NOT_PUSHED", sentence=f"Ask {group}."))
    assert afterlog(f"--group={group}") == (
        1,
        f"No topology description has been recorded for group '{shown}'.\n",
        f"afterlog: Ask {shown}.\nafterlog: --revision 2 still shows what was accepted last.\n",
    )
    assert json.loads(afterlog(f"--group={group}", "--format=json").out)["groupId"] == group

    write(settings, describe.REVISIONS, REVISIONS, accepted(group, 1, wire(group, f"{group} of\x07 {group}")))
    known = afterlog(f"--group={group}", "--revision=1")
    assert known.code == 0
    assert known.out.replace("\n", "").isprintable()
    exact = json.loads(afterlog(f"--group={group}", "--revision=1", "--format=json").out)
    assert (exact["groupId"], exact["topologyDescription"]) == (group, wire(group, f"{group} of\x07 {group}"))


def test_the_group_is_given_as_a_trace_is(warehouse: Settings, afterlog: Command) -> None:
    assert afterlog("orders-app", "--revision", "1").out == afterlog("--group", "orders-app", "--revision", "1").out
    for given in ((), ("orders-app", "--group", "orders-app")):
        said = afterlog(*given)
        assert (said.code, said.out) == (2, "")
        assert "afterlog describe GROUP" in said.err


def test_it_is_told_which_group_may_be_meant(settings: Settings, afterlog: Command) -> None:
    write(settings, describe.CURRENT, CURRENT, current("orders-app\x1b[2m"), current("billing"))
    assert afterlog("order-app").out.endswith("Did you mean 'orders-app\\u001b[2m'?\n")
    assert "Did you mean" not in afterlog("weather").out


def test_a_name_that_is_no_text_is_known_to_nobody(warehouse: Settings, afterlog: Command) -> None:
    said = afterlog("--group", os.fsdecode(b"orders-\xff"))

    assert (said.code, said.err) == (1, "")
    assert said.out.startswith("Nothing is known of group 'orders-\\udcff'")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        pytest.param(("--format", "text"), 0, id="text"),
        pytest.param(("--format", "json", "--revision", "1"), 0, id="json of a revision"),
        pytest.param(("--format", "svg"), 0, id="svg"),
        pytest.param(("--diff", "1", "3"), 0, id="difference"),
        pytest.param(("--revision", "4"), 1, id="nothing to show"),
    ],
)
def test_the_command_loads_nothing_that_takes_seconds(warehouse: Settings, given: tuple[str, ...], code: int) -> None:
    """A person waits for this command, so it starts no JVM and imports no slow library."""
    script = """
import atexit, sys
SLOW = ("pyspark", "py4j", "pandas", "numpy", "pyarrow", "great_expectations", "airflow", "jinja2")
atexit.register(lambda: print(*(name for name in SLOW if name in sys.modules), file=sys.stderr, end="|"))
from pipelines.cli import main
main()
"""
    command = ["describe", "--group", "orders-app", "--warehouse", warehouse.warehouse, *given]
    ran = subprocess.run(
        [sys.executable, "-c", script, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert ran.returncode == code, ran.stderr
    assert ran.stdout
    assert "Traceback" not in ran.stderr
    assert ran.stderr.endswith("|")
    assert ran.stderr.removesuffix("|").rpartition("\n")[2] == ""
