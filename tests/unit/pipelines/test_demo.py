"""What the demo lands, and what it refuses to touch."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pipelines.demo import _check, delta_log, land
from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.settings import load


def records(file: Path) -> int:
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return content.count(b"\n")


def test_all_bundled_records_are_landed_under_names_of_their_own(tmp_path: Path) -> None:
    assert land(tmp_path / "landing") == len(list((tmp_path / "landing").iterdir()))
    assert {file.name: records(file) for file in (tmp_path / "landing").iterdir()} == {
        "demo-dlq.orders.jsonl": 916,
        "demo-dlq.billing.jsonl": 534,
        "demo-dlq.shipping.jsonl": 57,
        "demo-dlq.audit.jsonl": 56,
        "demo-dlq.second-hop.jsonl": 215,
        "demo-broker-edge-cases.jsonl.gz": 84,
        "demo-kcat.jsonl": 8,
        "demo-planted-other-writers.jsonl": 48,
        "demo-planted-bad.jsonl": 9,
        "demo-planted-again.jsonl": 4,
    }


def test_files_that_are_there_are_left_alone(tmp_path: Path) -> None:
    land(tmp_path)
    mine = tmp_path / "mine.jsonl"
    mine.write_text("mine")
    before = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    (tmp_path / "demo-kcat.jsonl").write_text("older demo")
    land(tmp_path)
    after = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert {file for file in after if after[file] != before.get(file)} == {tmp_path / "demo-kcat.jsonl"}
    assert mine.read_text() == "mine"


def test_a_landing_directory_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "landing").write_text("")
    with pytest.raises(EnvironmentLacking, match="Nothing can be landed"):
        land(tmp_path / "landing")


def test_somebody_elses_warehouse_is_refused(tmp_path: Path) -> None:
    (tmp_path / "warehouse" / "bronze" / "dlq_records" / "_delta_log").mkdir(parents=True)
    settings = load(warehouse=str(tmp_path / "warehouse"), landing=str(tmp_path / "landing"))
    with pytest.raises(UsageError, match="not the demo's"):
        _check(settings)
    land(settings.landing_of("dlq"))
    _check(settings)


def test_a_warehouse_on_an_object_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="local warehouse"):
        _check(load(warehouse="s3a://lake/warehouse", landing=str(tmp_path)))


def test_delta_log_counts_commits_by_table(tmp_path: Path) -> None:
    for table, commits in (("silver/a", 2), ("quality/b", 1)):
        log = tmp_path / table / "_delta_log"
        log.mkdir(parents=True)
        for version in range(commits):
            (log / f"{version:020}.json").touch()
        (log / f"{0:020}.crc").touch()
    assert delta_log(tmp_path) == {"silver/a": 2, "quality/b": 1}
