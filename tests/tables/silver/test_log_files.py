"""bronze.record_batches -> silver.log_files: what each version of a segment covers; rows of batches are skipped."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from expectations.silver.log_files import CONTRACT
from pipelines.bronze.record_batches import parse
from pipelines.settings import load
from pipelines.silver.log_files import transform
from pipelines.sources.landing import LandedFile
from pipelines.sources.log_dirs import Segment
from pipelines.sources.segments import SCHEMA, Work, rows
from tests.testing.logs import T, one


def test_a_version_of_a_segment_is_a_row_with_what_it_covers(spark: SparkSession, tmp_path: Path) -> None:
    sound, torn = one(0, 3) + one(5, 2, epoch=2), one(7)[:-1]
    (tmp_path / "a").write_bytes(sound + torn)
    file = LandedFile("t-3/0.log", len(sound + torn), T)
    found = list(rows(Work(Segment.of("t-3/0.log"), file, str(tmp_path / "a"), True)))
    bronze = parse(spark.createDataFrame(found, SCHEMA), load())
    bronze = bronze.withColumns({"_ingested_at": F.lit(None).cast("timestamp"), "_run_id": F.lit("run")})
    candidates = transform(bronze, load()).withColumn("broken", CONTRACT.violations(CONTRACT.broken_rules())).collect()

    (version,) = [row for row in candidates if not row["_skipped"]]
    assert (len(candidates), version["broken"]) == (len(found), [])
    assert (version["topic"], version["partition"], version["version"], version["first_version"]) == ("t", 3, 1, 1)
    assert [(span["first_offset"], span["last_offset"]) for span in version["covered"]] == [(0, 6)]
    assert (version["batch_count"], version["size_in_bytes"], version["modified_ns"]) == (2, file.size, T)
    assert version["read_to"] == len(sound)
    assert (version["least_epoch"], version["greatest_epoch"], version["greatest_epoch_offset"]) == (0, 2, 5)
