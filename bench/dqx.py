"""Decoded dead letters -> accepted and quarantined rows, judged by DQX: about the rules of ``silver.dlq_records``.

``python bench/dqx.py DECODED OUT --class-path JARS`` reads Parquet, as ``bench.warm decode`` writes it, and writes the
Delta tables ``OUT/silver`` and ``OUT/quarantine``. It parses no lines, decodes no headers and drops no repeated grains.
It needs the packages of ``bench/dqx-requirements.txt`` only. The last line that it prints is JSON: the seconds of the
work in a warm session.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from unittest.mock import MagicMock

from databricks.labs.dqx import check_funcs
from databricks.labs.dqx.engine import DQEngine
from databricks.labs.dqx.rule import DQRowRule
from databricks.sdk import WorkspaceClient
from pyspark.sql import DataFrame, SparkSession

WARM_UP_ROWS = 20_000

READABLE = "error IS NULL"
SHARE_GROUP = "header_profile IN ('kip-1317', 'kip-1191')"
KIP_1317 = "header_profile = 'kip-1317'"
KNOWN = "header_profile IS NOT NULL"
DISPOSITIONS = [
    "MAX_DELIVERY_ATTEMPTS_REACHED",
    "CLIENT_REJECTED",
    "CIRCUIT_BREAKER_ARCHIVED",
    "COORDINATOR_INITIATED",
]
WHOLE = r"\A(0|[1-9][0-9]*)\z"
TIME_IN_UTC = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|\+00(:?00)?)\z"


def checks() -> list[DQRowRule]:
    """Return the checks, each with the condition under which it applies."""
    present = [
        ("error", None, check_funcs.is_null),
        ("dlq_topic", READABLE, check_funcs.is_not_null),
        ("dlq_partition", READABLE, check_funcs.is_not_null),
        ("dlq_offset", READABLE, check_funcs.is_not_null),
        ("header_profile", READABLE, check_funcs.is_not_null),
        ("original_topic", KNOWN, check_funcs.is_not_null),
        ("original_partition", KNOWN, check_funcs.is_not_null),
        ("original_offset", KNOWN, check_funcs.is_not_null),
        ("consumer_group", SHARE_GROUP, check_funcs.is_not_null),
        ("disposition", KIP_1317, check_funcs.is_not_null),
        ("routed_at", KIP_1317, check_funcs.is_not_null),
        ("undecodable_headers", None, check_funcs.is_null),
    ]
    matching = [
        ("original_topic", None, r"\A(?!\.{1,2}\z)[a-zA-Z0-9._-]{1,249}\z"),
        ("original_partition_text", None, WHOLE),
        ("original_offset_text", None, WHOLE),
        ("routed_at_text", KIP_1317, TIME_IN_UTC),
    ]
    at_least_0 = ("dlq_partition", "dlq_offset")
    return [
        *(DQRowRule(column=column, filter=where, check_func=check) for column, where, check in present),
        *(
            DQRowRule(column=column, filter=where, check_func=check_funcs.regex_match, check_func_args=[pattern])
            for column, where, pattern in matching
        ),
        *(
            DQRowRule(column=column, check_func=check_funcs.is_not_less_than, check_func_kwargs={"limit": 0})
            for column in at_least_0
        ),
        DQRowRule(
            column="disposition",
            filter=KIP_1317,
            check_func=check_funcs.is_in_list,
            check_func_kwargs={"allowed": [f"'{name}'" for name in DISPOSITIONS]},  # DQX takes SQL expressions
        ),
    ]


def split(engine: DQEngine, decoded: DataFrame, out: str) -> None:
    """Judge the rows and write both sides."""
    accepted, quarantined = engine.apply_checks_and_split(decoded, checks())
    accepted.write.format("delta").save(f"{out}/silver")
    quarantined.write.format("delta").save(f"{out}/quarantine")


def main() -> None:
    """Split a warm-up's rows, then all, and print the seconds of the latter as JSON."""
    parser = argparse.ArgumentParser(prog="dqx", description=__doc__)
    parser.add_argument("decoded", help="a directory of Parquet files")
    parser.add_argument("out", help="a directory for the tables, which must not exist")
    parser.add_argument("--class-path", required=True, help="the jars of Delta")
    parser.add_argument("--master", default="local[2]", help="default: local[2]")
    parser.add_argument("--memory", default="2g", help="of the driver; default: 2g")
    given = parser.parse_args()
    properties = {
        "spark.driver.extraClassPath": given.class_path,
        "spark.driver.memory": given.memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
    }
    builder = SparkSession.builder.master(given.master)
    for name, value in properties.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # The engine wants a client of a Databricks workspace, which it does not need to judge rows.
    engine = DQEngine(MagicMock(spec=WorkspaceClient), spark)
    decoded = spark.read.parquet(given.decoded)
    with tempfile.TemporaryDirectory(prefix="dqx-") as scratch:
        split(engine, decoded.limit(WARM_UP_ROWS), scratch + "/warm-up")
    began = time.perf_counter()
    split(engine, decoded, given.out)
    seconds = time.perf_counter() - began
    spark.stop()
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
