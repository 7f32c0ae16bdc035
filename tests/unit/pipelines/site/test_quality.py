"""The page on data quality: its statements, hostile names in it, and its sources."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from expectations.contract import contract_of
from expectations.quality import STAGE_RUNS
from expectations.verdict import Outcome, Verdict
from pipelines.catalog import CATALOG
from pipelines.errors import EnvironmentLacking
from pipelines.run.contracts import contracts
from pipelines.run.freshness import Freshness
from pipelines.run.newest import Newest
from pipelines.settings import Settings
from pipelines.site.pages import quality_page
from pipelines.site.quality import Feed, LogGap, Pipeline, Quarantine, Run, Table, Violation, bars, gather
from pipelines.site.report import build
from pipelines.warehouse import progress, quality
from pipelines.warehouse.progress import Batch, Progress
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse, quarantine_contract
from tests.testing.builders import warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
FRESH = Freshness("default", "silver.dlq_records", "bronze.dlq_records", None, None, 0, None, None)


def run(**changes: object) -> Run:
    known = Run("run-1", AT, 2.5, "passed", read=100, accepted=90, quarantined=4, duplicates=5, skipped=1)
    return replace(known, **changes)  # type: ignore[arg-type]


def table(**changes: object) -> Table:
    known = Table("silver.dlq_records", "One row per record.", (run(),), (), Quarantine(0, ()), FRESH)
    return replace(known, **changes)  # type: ignore[arg-type]


def page(*tables: Table, **changes: object) -> str:
    report = Pipeline("default", "/data/warehouse", AT + timedelta(hours=3), tables or (table(),))
    return quality_page(replace(report, **changes))  # type: ignore[arg-type]


def text_of(html: str) -> str:
    """Return a page's words as a person reads them."""
    said: list[str] = []
    parser = HTMLParser()
    parser.handle_data = said.append  # type: ignore[method-assign]
    parser.feed(html.partition('<main id="main">')[2])
    return " ".join(" ".join(said).split())


def test_the_page_tells_each_table_and_its_last_run() -> None:
    said = text_of(page(table(runs=(run(started_at=AT - timedelta(days=1)), run(read=1234567, accepted=1234566)))))
    assert "silver.dlq_records current" in said
    assert "read 1,234,567 accepted 1,234,566 quarantined 4 duplicates 5 skipped 1 held 0 seconds 2.5" in said
    assert "written" not in said  # the number is unknown
    assert "Last run passed 3 hours before this report, at 2026-03-01 12:00:00 UTC" in said
    assert "2026-02-28 12:00:00 UTC to 2026-03-01 12:00:00 UTC, 2 runs" in said


def test_a_table_without_a_run_says_so() -> None:
    assert "No run has had input for it yet." in text_of(page(table(runs=(), quarantine=None)))


@pytest.mark.parametrize(
    ("fresh", "said"),
    [
        pytest.param(FRESH, "silver.dlq_records current last run", id="nothing unread"),
        pytest.param(
            replace(FRESH, unread_files=2, unread_bytes=1_234_567, unread_versions=None),
            "behind not read yet: 2 files, 1.2 MB",
            id="files",
        ),
        pytest.param(
            replace(FRESH, unread_versions=1), "behind not read yet: 1 version of bronze.dlq_records", id="version"
        ),
        pytest.param(replace(FRESH, unread_offsets=1_234), "behind not read yet: 1,234 offsets of topics", id="topics"),
        pytest.param(
            replace(FRESH, unread_files=1, unread_bytes=5, unread_offsets=1),
            "behind not read yet: 1 file, 5 bytes and 1 offset of topics",
            id="files and topics",
        ),
    ],
)
def test_lag_is_what_was_not_read(fresh: Freshness, said: str) -> None:
    assert said in text_of(page(table(freshness=fresh)))


def test_topics_that_cannot_be_looked_at_are_no_lag_that_nobody_sees() -> None:
    fresh = replace(FRESH, message="No broker can be reached.")
    assert "No broker can be reached." in text_of(page(table(freshness=fresh)))


def test_gaps_in_topics_stand_before_the_tables() -> None:
    gaps = tuple(
        LogGap("bronze.dlq_records", "dlq.<b>", "bvpWvblvQLKULzhDKq4URw", 3, 1_000 * at, 1_000 * at + 10, AT)
        for at in range(14)
    )
    said = text_of(page(gaps=gaps))
    assert "140 offsets of topics were gone before they were read" in said
    assert "dlq.<b> bvpWvblvQLKULzhDKq4URw 3 1,000 1,009 10 bronze.dlq_records 2026-03-01 12:00:00 UTC" in said
    assert "And 2 more ranges: quality.gaps has them all." in said
    assert said.index("gone before") < said.index("silver.dlq_records")
    assert "gone before they were read" not in text_of(page())


def test_reading_what_was_not_committed_is_loud() -> None:
    said = text_of(page(uncommitted=("bronze.dlq_records",)))
    assert (
        "What aborted transactions wrote is read, too bronze.dlq_records: isolation_level is read_uncommitted" in said
    )


def test_a_blocked_batch_stands_first_with_its_cause_and_where_it_is() -> None:
    fresh = replace(FRESH, blocked_since="2026-03-01T09:00:00+00:00", message="The gate broke: do this.")
    broken = Outcome(
        "disposition.not_null", 40, 100, 0.05, 10, False, "It is mandatory.", "", tuple(f"offset={i}" for i in range(7))
    )
    held = Outcome("dlq_offset.at_least_0", 0, 100, 0.05, 10, True)
    said = text_of(page(table(runs=(run(status="broken"),), gate=(broken, held), freshness=fresh)))
    assert "silver.dlq_records is blocked since 2026-03-01 09:00:00 UTC, 6 hours ago The gate broke: do this." in said
    assert "1 expectation of 2 failed" in said
    assert "disposition.not_null fails in 40 of 100 rows (40.0%, tolerated 5.0%) : It is mandatory." in said
    assert "offset=0 offset=1 offset=2 offset=3 offset=4 and others" in said
    assert said.index("is blocked since") < said.index("in quarantine")


GATE = (
    Outcome("key.utf8", 0, 60, 0.05, 20, True),
    Outcome("topic.not_null", 20, 60, 0.05, 20, False),
    Outcome("topic.not_null", 20, 20, 0.05, 20, False, scope="dlq.orders"),
    Outcome("row.no_violations", 20, 60, 0.05, 20, False),
)


def test_a_gate_whose_rows_were_accepted_says_so() -> None:
    said = text_of(page(table(gate=GATE)))
    assert "Last run passed" in said
    assert "Its last gate: 1 expectation of 3 failed, and the rows were accepted once." in said


def test_what_broke_a_gate_is_listed_once_and_its_message_has_lines() -> None:
    fresh = replace(FRESH, blocked_since=AT.isoformat(), message="It broke.\nFix it\x1b[1m.")
    html = page(table(gate=GATE, freshness=fresh, runs=(run(status="broken"),)))
    assert text_of(html).count("topic.not_null fails in") == 1
    assert "It broke.\nFix it\\u001b[1m." in html
    assert "<b>row.no_violations" not in html
    assert "failed, and" not in html


def test_what_is_not_green_stands_before_all_others_and_each_table_once() -> None:
    broken = replace(FRESH, blocked_since="2026-03-01T09:00:00+00:00", message="The gate broke: do this.")
    tables = (
        table(name="bronze.green"),
        table(name="silver.refused", quarantine=Quarantine(3, ())),
        table(name="silver.late", freshness=replace(FRESH, unread_versions=2)),
        table(name="gold.blocked", freshness=broken),
        table(name="gold.new", runs=(), quarantine=None),
    )
    made = page(*tables)
    said = text_of(made)
    order = ["3 tables that need a look", "gold.blocked", "silver.late", "silver.refused", "All others"]
    order += ["bronze.green", "gold.new"]
    assert [said.index(item) for item in order] == sorted(said.index(item) for item in order)
    assert all(made.count(f'id="{table.name}"') == 1 for table in tables)
    assert "All tables are well" in text_of(page(table()))


def test_violations_are_told_with_count_and_meaning() -> None:
    violations = (Violation("a.not_null", 1500, "A is there."), Violation("gone.rule", 1, ""))
    said = text_of(page(table(quarantine=Quarantine(1500, violations))))
    assert "In quarantine: 1,500 rows" in said
    assert "a.not_null A is there. 1,500 gone.rule 1" in said
    assert "afterlog readmit silver.dlq_records" in said


HOSTILE = "<script>alert(1)</script>\"'>&\u202etxt\u2066\x00\x1b[31m\u200b\ud800"


def test_hostile_names_are_shown_and_do_nothing() -> None:
    outcome = Outcome(HOSTILE, 40, 100, 0.05, 10, False, HOSTILE, HOSTILE, (HOSTILE,))
    fresh = Freshness(HOSTILE, HOSTILE, HOSTILE, None, None, 3, "2026-03-01T09:00:00+00:00", HOSTILE)
    hostile = Table(
        HOSTILE,
        HOSTILE,
        (run(run_id=HOSTILE, status="failed", message=HOSTILE),),
        (outcome,),
        Quarantine(1, (Violation(HOSTILE, 1, HOSTILE),), (HOSTILE,), HOSTILE),
        fresh,
    )
    feeds = tuple(Feed(Newest(HOSTILE, used, HOSTILE, AT)) for used in (True, False))
    html = page(hostile, cluster=HOSTILE, warehouse=HOSTILE, feeds=feeds)
    assert html.count("<script") == 1  # ours
    assert all(character.isprintable() or character == "\n" for character in html)
    assert "<script>alert(1)</script>\"'>&\\u202etxt\\u2066\\u0000\\u001b[31m\\u200b\\ud800" in text_of(html)
    attributes: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, found: attributes.extend(name for name, _ in found)  # type: ignore[method-assign]
    parser.feed(html)
    known = "aria-current aria-hidden aria-label aria-labelledby aria-pressed charset class colspan content data-label"
    known += " defer height hidden href http-equiv id lang name open preserveaspectratio rel role rx scope src type"
    known += " viewbox width x y"
    assert set(attributes) <= set(known.split())
    html.encode("utf-8")


def test_the_page_needs_only_our_own_style_sheet_script_and_icon() -> None:
    html = page()
    assert re.findall(r"<(?:script|link|img|iframe)[^>]*?(?:src|href)=\"([^\"?]*)", html) == [
        "assets/icon.svg",
        "assets/site.css",
        "assets/site.js",
    ]
    assert not re.findall(r"url\(|@import|https?:|style=|\son\w+=", html)


def test_each_run_is_a_bar_of_the_shares_of_its_rows() -> None:
    passed, broken, empty = bars((run(), run(status="broken"), run(read=0, accepted=0)))
    assert passed.parts == (("accepted", 10.0, 90.0), ("other", 4.0, 6.0), ("quarantined", 0.0, 4.0))
    assert broken.parts == (("broken", 0.0, 100.0),)
    assert empty.parts == ()
    assert passed.x < broken.x < empty.x
    assert "accepted 90" in passed.title


def test_a_few_bad_rows_among_many_can_be_seen() -> None:
    (bar,) = bars((run(read=1_000_000, accepted=999_999, quarantined=1, duplicates=0, skipped=0),))
    assert [part for part, _, height in bar.parts if height >= 1.5] == ["accepted", "quarantined"]


def test_the_page_is_made_from_the_tables(spark: SparkSession, empty_warehouse: Path, tmp_path: Path) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    silver = contract_of("silver.dlq_records")
    quarantine = quarantine_contract(silver)

    def refused(cluster: str, identifier: str, *violations: str) -> dict[str, object]:
        return {"cluster": cluster, "_bronze_id": identifier, "violations": list(violations)}

    rows = [
        refused("default", "1", "dlq_offset.at_least_0", "grain.conflict"),
        refused("default", "2", "dlq_offset.at_least_0"),
        refused("elsewhere", "3", "dlq_offset.at_least_0"),
    ]
    Warehouse(settings, spark).append_objects(quarantine, rows)
    outcomes = tuple(
        Outcome(code, failing, 50, 0.05, 10, failing < 10, coordinates=("dlq_offset=7",) if failing else ())
        for code, failing in (("dlq_offset.at_least_0", 20), ("error.readable", 0))
    )
    verdict = Verdict("silver.dlq_records", "run-2", 50, outcomes)
    ended = AT + timedelta(seconds=3)
    quality.note(
        Warehouse(settings), StageRun("run-1", "silver.dlq_records", "passed", AT - timedelta(hours=1), AT, 9, 7, 2)
    )
    quality.note(
        Warehouse(settings),
        StageRun("run-2", "silver.dlq_records", "broken", AT, ended, 50, message="It broke.", verdict=verdict),
    )
    quality.report(Warehouse(settings, spark))
    blocked = Progress(
        pending={"bronze.dlq_records": Batch(None, 0)}, blocked_since=AT.isoformat(), message="It broke."
    )
    progress.save(Warehouse(settings), "silver.dlq_records", blocked)

    report = gather(Warehouse(settings))
    by_uri = settings.model_copy(update={"warehouse": Path(settings.warehouse).as_uri()})

    assert [(table.runs, table.gate, table.quarantine) for table in gather(Warehouse(by_uri, spark)).tables] == [
        (table.runs, table.gate, table.quarantine) for table in report.tables
    ]
    assert [table.name for table in report.tables] == [stage.table for stage in CATALOG]
    bronze, found, gold = report.tables[:3]
    assert [(stage_run.run_id, stage_run.status, stage_run.started_at) for stage_run in found.runs] == [
        ("run-1", "passed", AT - timedelta(hours=1)),
        ("run-2", "broken", AT),
    ]
    assert (found.runs[0].read, found.runs[0].accepted, found.runs[0].quarantined) == (9, 7, 2)
    assert [stage_run.written for stage_run in found.runs] == [7, 0]
    assert [(item.code, item.failing, item.success) for item in found.gate] == [
        ("dlq_offset.at_least_0", 20, False),
        ("error.readable", 0, True),
    ]
    assert found.gate[0].coordinates == ("dlq_offset=7",)
    assert found.quarantine == Quarantine(
        2,
        (
            Violation("dlq_offset.at_least_0", 2, "2 rows had dlq_offset below 0"),
            Violation("grain.conflict", 1, "The table holds a row of the same grain with other content, which stands."),
        ),
    )
    assert (found.state, found.blocked_since, found.freshness.message) == ("blocked", AT, "It broke.")
    assert (bronze.state, bronze.quarantine, gold.runs) == ("new", None, ())

    index = build(Warehouse(settings))

    assert index == settings.reports() / "index.html"
    assert "silver.dlq_records is blocked since 2026-03-01 12:00:00 UTC" in text_of(
        index.with_name("quality.html").read_text()
    )
    assert (settings.reports() / "data_docs" / "index.html").is_file()
    assert not [file for file in settings.reports().rglob("*.tmp") if file.is_file()]


def test_a_report_on_an_empty_warehouse_is_a_page(settings: Settings) -> None:
    said = text_of(build(Warehouse(settings)).with_name("quality.html").read_text())
    assert "dlq: not set up: put files of dead-letter records into" in said
    assert "tables of feeds that are not set up" in said


def test_a_directory_that_cannot_be_written_is_one_sentence(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    report = settings.report.model_copy(update={"directory": str(tmp_path / "file" / "reports")})
    with pytest.raises(EnvironmentLacking, match=r"reports cannot be written to .*file/reports"):
        build(Warehouse(settings.model_copy(update={"report": report})))


def test_what_a_summarised_table_read_and_what_was_written_to_it_are_two_numbers() -> None:
    said = text_of(page(table(runs=(run(read=1944, accepted=1944, quarantined=0, written=35),))))
    assert "read 1,944 accepted 1,944 quarantined 0 duplicates 5 skipped 1 held 0 written 35 seconds 2.5" in said
    (bar,) = bars((run(read=1944, accepted=1944, quarantined=0, written=35),))
    assert bar.title.endswith("duplicates 5, written 35")


def test_runs_of_an_earlier_version_did_not_say_what_they_wrote(spark: SparkSession, settings: Settings) -> None:
    earlier = replace(STAGE_RUNS, columns=tuple(column for column in STAGE_RUNS.columns if column.name != "written"))
    Warehouse(settings, spark).ensure_all([earlier])
    noted = {"run_id": "run-1", "cluster": "default", "table": "gold.dlq_summary", "status": "passed", "read": 9}
    noted |= {"accepted": 9, "quarantined": 0, "duplicates": 0, "skipped": 0, "seconds": 1.0}
    noted |= {"started_at": AT.isoformat(), "finished_at": AT.isoformat()}
    Warehouse(settings, spark).append_objects(earlier, [noted])
    Warehouse(settings, spark).ensure_all(contracts())

    def written() -> list[int | None]:
        (gold,) = [table for table in gather(Warehouse(settings)).tables if table.name == "gold.dlq_summary"]
        return [stage_run.written for stage_run in gold.runs]

    assert written() == [None]
    later = AT + timedelta(hours=1)
    quality.note(Warehouse(settings), StageRun("run-2", "gold.dlq_summary", "passed", later, later, 9, 9, refreshed=2))
    quality.report(Warehouse(settings, spark))
    assert written() == [None, 2]
    comments = {field.name: field.metadata for field in Warehouse(settings, spark).read(STAGE_RUNS.table).schema}
    assert comments["written"]["comment"].startswith("Rows written to the table")
