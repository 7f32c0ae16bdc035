"""The age of feeds: real Delta tables, written without Spark, and the remarks of questions about now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from pipelines.catalog import CATALOG, stages, stages_of_type
from pipelines.commands import remarks
from pipelines.errors import UsageError
from pipelines.run import newest
from pipelines.settings import LANDING_DIRECTORIES, ROOT, Settings, load
from pipelines.sources.landing import LandedFile
from pipelines.stage import Land
from pipelines.warehouse import alert_log, jvmless, progress
from pipelines.warehouse.progress import Held, Progress
from pipelines.warehouse.tables import Warehouse

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
BRONZE, SILVER = "bronze.dlq_records", "silver.dlq_records"
NOT_ENOUGH = 1_000  # hours


def store(settings: Settings, table: str, *rows: dict[str, Any]) -> None:
    """Append rows with a cluster and times to a table."""

    def column(name: str) -> Array:
        values = [row[name] for row in rows]
        if name == "cluster":
            return Array(values, DataType.string())
        micros = [int(value.timestamp() * 1_000_000) for value in values]
        return Array(micros, DataType.int64()).cast(DataType.timestamp("us", tz="UTC"))

    made = Table.from_pydict({name: column(name) for name in rows[0]})
    write_deltalake(Warehouse(settings).location(table), made, mode="append", schema_mode="merge")


def dead_letters(settings: Settings, *ages: timedelta, cluster: str = "default", bronze_only: bool = False) -> None:
    """Store records of the feed ``dlq`` with these ages, in one commit per table."""
    times = [NOW - age for age in ages]
    landed = {"cluster": cluster, "_ingested_at": NOW - timedelta(minutes=1)}
    store(settings, BRONZE, *(landed | {"timestamp": time} for time in times))
    if not bronze_only:
        store(settings, SILVER, *(landed | {"routed_at": time} for time in times))


def of(settings: Settings, feed: str = "dlq", now: datetime = NOW) -> newest.Newest:
    (stage,) = [stage for stage in stages_of_type(Land) if stage.directory == feed]
    return newest.of_feed(Warehouse(settings), stage, now)


def asked(settings: Settings, text: str, written: int = 0, now: datetime = NOW) -> list[str]:
    return remarks.remarks(Warehouse(settings), text, {"now": now}, written)


def question(name: str) -> str:
    return (ROOT / "sql" / "questions" / f"{name}.sql").read_text(encoding="utf-8")


# --- the newest record ---------------------------------------------------------------------------------------------


def test_the_newest_record_is_known_from_the_statistics_of_files(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letters(settings, 40 * HOUR, 33 * HOUR)
    dead_letters(settings, 32 * HOUR, 35 * HOUR)

    def read(*_: Any) -> None:
        raise AssertionError("a column is read")

    monkeypatch.setattr(QueryBuilder, "execute", read)
    item = of(settings)

    assert (item.used, item.at, item.accepted_at, item.age) == (True, NOW - 32 * HOUR, NOW - 32 * HOUR, 32 * HOUR)
    assert item.in_words == "the newest record is 32 hours old (2026-11-20 04:00:00 UTC)"


def test_a_record_that_is_stamped_ahead_counts_from_its_landing(settings: Settings) -> None:
    dead_letters(settings, 5 * HOUR)
    assert (of(settings).at, of(settings).ahead) == (NOW - 5 * HOUR, None)
    dead_letters(settings, -58 * MINUTE)
    assert (of(settings).at, of(settings).ahead) == (NOW - MINUTE, 58 * MINUTE)
    assert of(settings).in_words == (
        "the last record landed 60 seconds ago, and one is stamped 58 minutes ahead: check the clock of what wrote it"
    )
    assert of(settings, now=NOW - 2 * MINUTE).at == NOW - 5 * HOUR


def test_records_of_other_clusters_are_left_out(settings: Settings) -> None:
    dead_letters(settings, 5 * HOUR)
    dead_letters(settings, 1 * HOUR, cluster="elsewhere")
    assert of(settings).at == NOW - 5 * HOUR
    assert of(settings, now=NOW - 6 * HOUR).at is None
    assert of(load(warehouse=settings.warehouse, cluster="elsewhere")).at == NOW - HOUR
    assert of(load(warehouse=settings.warehouse, cluster="it's")).at is None


def test_times_that_python_does_not_know_do_no_harm(settings: Settings) -> None:
    micros = [253_402_300_800_000_000 + 5, int((NOW - HOUR).timestamp() * 1_000_000), None]
    times = Array(micros, DataType.int64()).cast(DataType.timestamp("us", tz="UTC"))
    rows = {"cluster": Array(["default"] * 3, DataType.string()), "routed_at": times}
    write_deltalake(Warehouse(settings).location(SILVER), Table.from_pydict(rows))
    assert jvmless.greatest(Warehouse(settings), SILVER, "routed_at", NOW) == NOW - HOUR


def test_files_without_statistics_are_read(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    dead_letters(settings, 2 * HOUR)
    told = DeltaTable.get_add_actions

    def without(table: DeltaTable, flatten: bool = False) -> Any:
        actions = told(table, flatten=flatten)
        return actions.select([name for name in actions.schema.names if not name.startswith("max.")])

    monkeypatch.setattr(DeltaTable, "get_add_actions", without)
    assert of(settings).at == NOW - 2 * HOUR


def test_records_that_tell_no_time_have_landed_all_the_same(settings: Settings) -> None:
    store(settings, BRONZE, {"cluster": "default", "_ingested_at": NOW - 90 * MINUTE, "timestamp": NOW + HOUR})
    item = of(settings, now=NOW - 2 * HOUR)
    assert (item.used, item.at) == (True, None)
    assert item.in_words == "no record tells a time before 2026-11-21 10:00:00 UTC"
    assert (of(settings).at, of(settings).ahead) == (NOW - 90 * MINUTE, HOUR)


@pytest.mark.parametrize("feed", LANDING_DIRECTORIES)
def test_a_feed_that_was_never_used_says_how_it_is_set_up(feed: str, settings: Settings) -> None:
    item = of(settings, feed)
    assert not item.used
    assert item.in_words.startswith("not set up: put files of ")
    assert str(settings.landing_of(feed)) in item.in_words
    assert ("kafka" in item.in_words) == (feed in newest.OF_TOPICS)
    settings.landing_of(feed).mkdir(parents=True)
    assert not of(settings, feed).used
    directory = settings.landing_of(feed) / "orders-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(b"x")
    assert (of(settings, feed).used, of(settings, feed).at) == (True, None)


def test_a_feed_that_was_read_or_is_to_be_read_from_topics_is_used(settings: Settings) -> None:
    read = Progress(directory="/gone", files={"a.log": LandedFile("a.log", 1, 1)})
    progress.save(Warehouse(settings), "bronze.broker_events", read)
    assert of(settings, "broker-logs").in_words == "no event yet"
    places = {"warehouse": settings.warehouse, "landing": settings.landing}
    topics = load(**places, dlq={"source": "kafka"}, kafka={"bootstrap_servers": "a:9092"})
    assert of(topics).used
    assert not of(topics, "acknowledgements").used


def test_the_feeds_are_those_of_the_catalog() -> None:
    landing = [stage.directory for stage in stages_of_type(Land)]
    assert sorted(LANDING_DIRECTORIES) == sorted(landing) == sorted(newest.TIMES) == sorted(newest.WHAT_LANDS)


def test_each_table_is_of_a_feed() -> None:
    sources = {stage.table: newest.source_of(stage.table) for stage in CATALOG}
    assert all(sources.values())
    (bronze,) = stages(only=BRONZE)
    assert newest.source_of("gold.dlq_summary") == newest.source_of("silver.dlq_refusals") == bronze
    assert newest.source_of("quarantine.dlq_records") == newest.source_of("held.dlq_records") == bronze
    assert newest.source_of("quality.stage_runs") is newest.source_of("gold.nothing") is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *((0, "0 seconds"), (1, "1 second"), (-5, "0 seconds"), (119, "119 seconds"), (120, "2 minutes")),
        *((7_199, "119 minutes"), (7_200, "2 hours"), (32 * 3_600, "32 hours"), (72 * 3_600 - 1, "71 hours")),
        (10**9, "11,574 days"),
    ],
)
def test_a_duration_has_the_unit_of_a_person(seconds: int, said: str) -> None:
    assert newest.lasting(timedelta(seconds=seconds)) == said


# --- silence -------------------------------------------------------------------------------------------------------


def every(pause: timedelta, times: int, last: timedelta) -> list[timedelta]:
    return [last + pause * index for index in range(times)]


@pytest.mark.parametrize(
    ("ages", "limit"),
    [
        pytest.param(every(5 * MINUTE, 50, 32 * HOUR), HOUR, id="steady, then nothing"),
        pytest.param(every(HOUR, 40, 32 * HOUR), 3 * HOUR, id="hourly"),
        pytest.param(every(5 * MINUTE, 50, 50 * MINUTE), None, id="a short pause"),
        pytest.param(every(HOUR, 40, 150 * MINUTE), None, id="a usual pause"),
        pytest.param(
            every(MINUTE, 300, 15 * HOUR) + every(MINUTE, 300, 36 * HOUR) + every(MINUTE, 300, 60 * HOUR) * 3
            + every(MINUTE, 300, 84 * HOUR) + every(MINUTE, 300, 108 * HOUR),
            None,
            id="nights",
        ),
        pytest.param(every(MINUTE, 5, 90 * HOUR), None, id="too few"),
        pytest.param([*every(MINUTE, 30, 32 * HOUR), 80 * HOUR], None, id="an incident"),
        pytest.param([32 * HOUR] * 500, None, id="one moment"),
        pytest.param(every(MINUTE, 20, 32 * HOUR), None, id="not long"),
        pytest.param(every(MINUTE, 60, 32 * HOUR), HOUR, id="an hour"),
    ],
)  # fmt: skip
def test_a_steady_feed_falls_silent(ages: Sequence[timedelta], limit: timedelta | None, settings: Settings) -> None:
    dead_letters(settings, *ages)
    found = newest.silence(Warehouse(settings), of(settings))
    assert (found.limit if found else None) == limit


def test_a_setting_says_how_long_a_feed_may_pause(settings: Settings) -> None:
    dead_letters(settings, *every(5 * MINUTE, 50, 32 * HOUR))

    def silent(**given: Any) -> bool:
        told = load(warehouse=settings.warehouse, silence=given)
        return newest.silence(Warehouse(told), of(told)) is not None

    assert silent()
    assert not silent(after_hours={"dlq": 33})
    assert silent(after_hours={"dlq": 31.5})
    assert not silent(times_longest_pause=500)
    assert not silent(least_hours=33)
    with pytest.raises(UsageError, match="there is no feed dlqs"):
        silent(after_hours={"dlqs": 1})


def test_segments_and_logs_come_when_they_come(settings: Settings) -> None:
    rows = [{"cluster": "default", "max_timestamp": NOW - age} for age in every(5 * MINUTE, 50, 32 * HOUR)]
    store(settings, "silver.record_batches", *rows)
    assert of(settings, "segments").age == 32 * HOUR
    assert newest.silence(Warehouse(settings), of(settings, "segments")) is None
    told = load(warehouse=settings.warehouse, silence={"after_hours": {"segments": 24}})
    assert newest.silence(Warehouse(told), of(told, "segments")) == newest.Silence(24 * HOUR)


# --- remarks of questions ------------------------------------------------------------------------------------------


ABOUT_NOW = [path.stem for path in sorted((ROOT / "sql" / "questions").glob("*.sql")) if ":now" in path.read_text()]


@pytest.mark.parametrize("name", ABOUT_NOW)
def test_each_question_about_now_tells_how_old_its_feed_is(name: str, settings: Settings) -> None:
    old = NOW - timedelta(hours=NOT_ENOUGH)
    dead_letters(settings, timedelta(hours=NOT_ENOUGH))
    store(settings, "bronze.streams_requests", {"cluster": "default", "logged_at": old, "_ingested_at": NOW})
    store(settings, "silver.record_batches", {"cluster": "default", "max_timestamp": old})
    store(settings, "bronze.record_batches", {"cluster": "default", "_ingested_at": NOW})

    (said,) = asked(settings, question(name))

    feed = {"open_transactions": "segments", "pushes_refused": "streams-requests"}
    feed |= {"topology_changes": "streams-requests"}
    assert said.startswith(
        f"Of the feed {feed.get(name, 'dlq')} the newest record is 41 days old (2026-10-10 20:00:00 UTC)"
    )


@pytest.mark.parametrize(
    ("name", "age", "is_told"),
    [
        ("top_groups", 25 * HOUR, True),
        ("top_groups", 2 * HOUR, True),  # none of its records is within the last hour
        ("top_groups", 59 * MINUTE, False),
        ("new_in_the_last_hour", 2 * HOUR, True),
        ("blast_radius", 23 * HOUR, False),
        ("blast_radius", 25 * HOUR, True),
        ("volume_by_hour", 71 * HOUR, False),
        ("header_profiles", 900 * HOUR, False),
    ],
)
def test_age_is_told_where_it_explains_what_is_not_there(
    name: str, age: timedelta, is_told: bool, settings: Settings
) -> None:
    dead_letters(settings, age)
    assert bool(asked(settings, question(name))) == is_told


def test_statements_of_ones_own_are_told_too(settings: Settings) -> None:
    now = datetime.now(UTC)
    dead_letters(settings, NOW - now + 5 * HOUR)
    own = "SELECT count(*) FROM silver.dlq_records WHERE routed_at >"
    for clock in ("now() - INTERVAL 2 HOURS", "current_timestamp - interval '30' minutes", "current_date"):
        (said,) = remarks.remarks(Warehouse(settings), f"{own} {clock}", {"now": now}, 1)
        assert "the newest record is 5 hours old" in said
    assert remarks.remarks(Warehouse(settings), f"{own} now() - INTERVAL 1 DAY", {"now": now}, 0) == []
    assert remarks.remarks(Warehouse(settings), f"{own} 'now()' -- now()", {"now": now}, 0) == []
    assert remarks.remarks(Warehouse(settings), "SELECT 1 WHERE :now IS NULL", {"now": now}, 0) == []
    assert remarks.remarks(Warehouse(settings), "SELECT :now FROM silver.nonsense", {"now": now}, 0) == []


def test_an_absent_route_explains_why_nobody_was_told(settings: Settings) -> None:
    assert asked(settings, question("who_was_told")) == [alert_log.NO_ROUTE]
    assert asked(settings, question("who_was_told"), written=1) == []
    route = {"name": "all", "url": "http://127.0.0.1:9/"}
    routed = load(warehouse=settings.warehouse, landing=settings.landing, alerts={"route": [route]})
    assert asked(routed, question("who_was_told")) == []


def test_a_feed_that_is_not_set_up_explains_an_empty_answer(settings: Settings) -> None:
    dead_letters(settings, MINUTE)
    assert [said.split()[2] for said in asked(settings, question("lost_messages"))] == ["acknowledgements", "segments"]
    assert [said.split()[2] for said in asked(settings, question("applications_touched"))] == ["streams-requests"]
    assert "not set up: put files" in asked(settings, "SELECT * FROM gold.delivery_guarantees")[0]
    assert asked(settings, question("lost_messages"), written=1) == []
    assert asked(settings, question("top_groups")) == []
    assert asked(settings, question("gate_history")) == []
    assert asked(settings, "SELECT * FROM quarantine.dlq_records") == []


def test_an_earlier_now_is_compared_with_what_was_there_then(settings: Settings) -> None:
    dead_letters(settings, MINUTE, 30 * HOUR, 80 * HOUR)
    (said,) = asked(settings, question("blast_radius"), now=NOW - 50 * HOUR)
    assert "30 hours old" in said
    assert said.endswith("as of 2026-11-19 10:00:00 UTC.")
    (said,) = asked(settings, question("blast_radius"), now=NOW - 100 * HOUR)
    assert "no record tells a time before 2026-11-17 08:00:00 UTC" in said


def test_what_is_held_or_refused_is_told(settings: Settings) -> None:
    dead_letters(settings, 32 * HOUR)
    dead_letters(settings, MINUTE, bronze_only=True)
    (said,) = asked(settings, question("top_groups"))
    assert said == (
        "Of the feed dlq the newest accepted record is 32 hours old (2026-11-20 04:00:00 UTC), "
        "as of 2026-11-21 12:00:00 UTC; newer ones were not accepted."
    )
    held = Held(NOW.isoformat(), "It broke.", 20, "")
    progress.save(Warehouse(settings), SILVER, Progress(held={"dlq.orders": held}))
    assert asked(settings, question("top_groups"))[1:] == [
        "20 rows of silver.dlq_records are held, which answers do not see: see `afterlog doctor`."
    ]


def test_a_warehouse_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    settings = load(warehouse=str(tmp_path / "none"), landing=str(tmp_path / "landing"))
    assert {feed.used for feed in newest.of_feeds(Warehouse(settings))} == {False}
    assert not (tmp_path / "none").exists()
