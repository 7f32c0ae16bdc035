"""Landed dead letters -> four Delta tables, by DuckDB: what a user would write without Spark.

``python bench/duck.py LANDING OUT`` reads ``LANDING/dlq/*.jsonl`` (capture form) and writes ``OUT/bronze``, ``silver``,
``quarantine`` and ``gold``. It needs duckdb and deltalake only. The last line that it prints is JSON: the
seconds of the work, without the start of Python, and the number of rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import NoReturn

import duckdb
from deltalake import write_deltalake

FIELDS = ("topic", "partition", "offset", "group", "disposition", "message", "exception", "deliveries", "routed_at")
PROFILES = {
    "kip-1317": {
        "topic": "_dlq.errors.original.topic",
        "partition": "_dlq.errors.original.partition",
        "offset": "_dlq.errors.original.offset",
        "group": "_dlq.errors.original.consumer.group",
        "disposition": "_dlq.errors.disposition",
        "routed_at": "_dlq.errors.timestamp",
    },
    "kip-1191": {
        "topic": "__dlq.errors.topic",
        "partition": "__dlq.errors.partition",
        "offset": "__dlq.errors.offset",
        "group": "__dlq.errors.group",
        "message": "__dlq.errors.message",
        "deliveries": "__dlq.errors.delivery.count",
    },
    "kafka-streams": {
        "topic": "__streams.errors.topic",
        "partition": "__streams.errors.partition",
        "offset": "__streams.errors.offset",
        "message": "__streams.errors.message",
        "exception": "__streams.errors.exception",
    },
    "kafka-connect": {
        "topic": "__connect.errors.topic",
        "partition": "__connect.errors.partition",
        "offset": "__connect.errors.offset",
        "message": "__connect.errors.exception.message",
        "exception": "__connect.errors.exception.class.name",
    },
    "spring-kafka": {
        "topic": "kafka_dlt-original-topic",
        "partition": "kafka_dlt-original-partition",
        "offset": "kafka_dlt-original-offset",
        "group": "kafka_dlt-original-consumer-group",
        "message": "kafka_dlt-exception-message",
        "exception": "kafka_dlt-exception-fqcn",
    },
}
"""By profile, the header that fills each field."""

# A line that is not JSON gives a row of nulls; the line itself is lost.
LANDED = """
CREATE TEMP TABLE bronze AS
SELECT
  parse_filename(filename) AS source,
  topic, partition, "offset", make_timestamptz(timestamp * 1000) AS timestamp, timestampType AS timestamp_type,
  try(from_base64("key")) AS "key",
  try(from_base64("value")) AS "value",
  ("key" IS NOT NULL AND try(from_base64("key")) IS NULL)
    OR ("value" IS NOT NULL AND try(from_base64("value")) IS NULL) AS is_not_base64,
  headers
FROM read_json(?, format = 'newline_delimited', ignore_errors = true, filename = true, columns = {
  topic: 'VARCHAR', partition: 'INTEGER', "offset": 'BIGINT', timestamp: 'BIGINT', timestampType: 'INTEGER',
  "key": 'VARCHAR', "value": 'VARCHAR', headers: 'STRUCT("key" VARCHAR, "value" VARCHAR)[]'
})
"""

# Headers are read from the last to the first: the last header of a name counts, and the last writer's profile.
CANDIDATES = """
CREATE TEMP TABLE candidates AS
WITH named AS (
  SELECT *, list_reverse([h.key FOR h IN headers]) AS names, list_reverse([h.value FOR h IN headers]) AS contents
  FROM bronze
),
profiled AS (
  SELECT *, CASE list_filter(names, lambda name: name IN ({markers}))[1] {profiles} END AS profile FROM named
),
placed AS (
  SELECT *, {bytes} FROM profiled
),
decoded AS (
  SELECT * EXCLUDE (names, contents), {texts},
    CASE profile WHEN 'spring-kafka' THEN '0x' || hex(b_partition) ELSE try(decode(b_partition)) END AS t_partition,
    CASE profile WHEN 'spring-kafka' THEN '0x' || hex(b_offset) ELSE try(decode(b_offset)) END AS t_offset
  FROM placed
),
typed AS (
  SELECT *,
    try_cast(t_partition AS INTEGER) AS original_partition,
    try_cast(t_offset AS BIGINT) AS original_offset,
    CASE profile WHEN 'kip-1317' THEN try_cast(t_routed_at AS TIMESTAMPTZ) ELSE timestamp END AS routed_at,
    coalesce(t_disposition, CASE t_message
      WHEN 'Offset rejected by client.' THEN 'CLIENT_REJECTED'
      WHEN 'Offset delivery count exceeded the threshold.' THEN 'MAX_DELIVERY_ATTEMPTS_REACHED'
    END) AS disposition
  FROM decoded
)
SELECT
  source, topic AS dlq_topic, partition AS dlq_partition, "offset" AS dlq_offset, timestamp AS dlq_timestamp, profile,
  disposition, t_topic AS original_topic, original_partition, original_offset, t_group AS consumer_group,
  try_cast(t_deliveries AS INTEGER) AS delivery_count, t_message AS error_message,
  split_part(t_exception, ': ', 1) AS exception_class, routed_at, "key", "value", headers,
  (hash(timestamp, timestamp_type, "key", "value", headers) % 9223372036854775807)::BIGINT AS content_hash,
  list_filter([
    CASE WHEN topic IS NULL OR partition IS NULL OR "offset" IS NULL THEN 'unreadable' END,
    CASE WHEN is_not_base64 THEN 'not base64' END,
    CASE WHEN profile IS NULL AND topic IS NOT NULL THEN 'no known profile' END,
    CASE WHEN profile IS NOT NULL AND coalesce(NOT regexp_full_match(t_topic, '[a-zA-Z0-9._-]{{1,249}}'), true)
      THEN 'original_topic' END,
    CASE WHEN profile IS NOT NULL AND coalesce(original_partition < 0, true) THEN 'original_partition' END,
    CASE WHEN profile IS NOT NULL AND coalesce(original_offset < 0, true) THEN 'original_offset' END,
    CASE WHEN profile IN ('kip-1317', 'kip-1191') AND coalesce(t_group, '') = '' THEN 'consumer_group' END,
    CASE WHEN profile = 'kip-1317' AND routed_at IS NULL THEN 'routed_at' END,
    CASE WHEN profile = 'kip-1317' AND coalesce(t_disposition NOT IN (
      'CLIENT_REJECTED', 'MAX_DELIVERY_ATTEMPTS_REACHED', 'CIRCUIT_BREAKER_ARCHIVED', 'COORDINATOR_INITIATED'
    ), true) THEN 'disposition' END
  ], lambda broken: broken IS NOT NULL) AS violations
FROM typed
"""

SILVER = """
SELECT * EXCLUDE (violations) FROM candidates WHERE len(violations) = 0
QUALIFY row_number() OVER (PARTITION BY dlq_topic, dlq_partition, dlq_offset ORDER BY source) = 1
"""

GOLD = """
SELECT
  date_trunc('hour', routed_at) AS hour, dlq_topic, original_topic, consumer_group, disposition,
  count(*) AS record_count,
  count(DISTINCT (original_partition, original_offset)) AS source_record_count,
  max(delivery_count) AS most_deliveries,
  min(routed_at) AS first_routed_at,
  max(routed_at) AS last_routed_at
FROM silver GROUP BY ALL
"""


def candidates() -> str:
    """Return the statement that decodes and judges; a field's header depends on the profile."""
    placed = {}
    for field in FIELDS:
        cases = (
            f"WHEN '{name}' THEN '{header_of[field]}'" for name, header_of in PROFILES.items() if field in header_of
        )
        position = f"list_position(names, CASE profile {' '.join(cases)} END)"
        placed[field] = f"try(from_base64(contents[{position}])) AS b_{field}"
    return CANDIDATES.format(
        markers=", ".join(f"'{header_of['topic']}'" for header_of in PROFILES.values()),
        profiles=" ".join(f"WHEN '{header_of['topic']}' THEN '{name}'" for name, header_of in PROFILES.items()),
        bytes=", ".join(placed.values()),
        texts=", ".join(
            f"try(decode(b_{field})) AS t_{field}" for field in FIELDS if field not in ("partition", "offset")
        ),
    )


def run(files: list[str], out: Path, threads: int, memory: str) -> dict[str, int]:
    """Fill the four tables from the files and return the numbers of rows."""
    database = duckdb.connect()
    database.execute(f"SET threads = {threads}")
    database.execute("SET memory_limit = $limit", {"limit": memory})
    database.execute("SET TimeZone = 'UTC'")
    database.execute("SET preserve_insertion_order = false")
    database.execute(LANDED, [files])
    write_deltalake(str(out / "bronze"), database.sql("FROM bronze"))
    database.execute(candidates())
    database.execute(f"CREATE TEMP TABLE silver AS {SILVER}")
    write_deltalake(str(out / "silver"), database.sql("FROM silver"))
    write_deltalake(str(out / "quarantine"), database.sql("FROM candidates WHERE len(violations) > 0"))
    write_deltalake(str(out / "gold"), database.sql(GOLD))
    counts = database.execute(
        "SELECT (SELECT count(*) FROM bronze), (SELECT count(*) FROM silver),"
        " (SELECT count(*) FROM candidates WHERE len(violations) > 0)"
    ).fetchone()
    assert counts is not None
    return dict(zip(("records", "accepted", "quarantined"), counts, strict=True))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one sentence."""
        self.exit(2, f"{message[:1].upper()}{message[1:]}.\n")


def main() -> None:
    """Run on a landing directory and print the seconds and the numbers of rows as JSON."""
    parser = _Parser(prog="duck", description=__doc__)
    parser.add_argument("landing", type=Path, help="a landing directory, which holds dlq/")
    parser.add_argument("out", type=Path, help="a directory for the tables, which must not exist")
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    parser.add_argument("--memory", default="2GiB", help="of DuckDB; default: 2GiB")
    given = parser.parse_args()
    files = sorted(map(str, (given.landing / "dlq").glob("*.jsonl")))
    if not files:
        parser.error(f"there are no files dlq/*.jsonl in {given.landing}")
    if given.out.exists():
        parser.error(f"{given.out} exists already: name another directory")
    if given.threads < 1:
        parser.error(f"--threads is {given.threads}: give 1 or more")
    began = time.perf_counter()
    try:
        counts = run(files, given.out, given.threads, given.memory)
    except duckdb.Error as error:
        sys.exit(str(error).splitlines()[0])
    print(json.dumps({"seconds": time.perf_counter() - began, **counts}))


if __name__ == "__main__":
    main()
