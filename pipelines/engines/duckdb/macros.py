"""Functions of DuckDB that do what Spark's functions of similar names do, for ``translate``."""

from __future__ import annotations

from pipelines.engines.duckdb.functions import SEED

MOST_ELEMENTS = 1_000_000  # of a sequence: its array is in memory
_BY_ZERO = "CASE WHEN divisor = 0 THEN error('division by zero') ELSE dividend {} divisor END"
_PLAIN = "'VARCHAR', 'BOOLEAN', 'TINYINT', 'SMALLINT', 'INTEGER', 'BIGINT', 'HUGEINT'"
_SPACED = "regexp_matches(value, '^[\\x00-\\x20\\x7f]|[\\x00-\\x20\\x7f]$')"
_REFUSED = "CASE WHEN CAST(CASE WHEN {} IS NULL THEN 'false' ELSE '{}' END AS BOOLEAN) THEN NULL END"
"""An error that says why, unlike error() also where DuckDB takes no function with an effect."""
_NO_ORDER = "the order of null within a value"
_HAS_NULL = "len(list_filter({}, lambda item: item IS NULL)) > 0"
MACROS = (
    "spark_int(value) AS CASE WHEN typeof(value) = 'DOUBLE' THEN CAST(trunc(value) AS INT) ELSE CAST(value AS INT) END",
    f"spark_divide(dividend, divisor) AS {_BY_ZERO.format('/')}",
    f"spark_div(dividend, divisor) AS {_BY_ZERO.format('//')}",
    "spark_array_position(list, item) AS "
    "CASE WHEN list IS NOT NULL AND item IS NOT NULL THEN coalesce(list_position(list, item), 0) END",
    "spark_exists(met) AS CASE WHEN met IS NULL THEN NULL WHEN list_contains(met, true) THEN true "
    "WHEN len(list_filter(met, lambda one: one IS NULL)) > 0 THEN NULL ELSE false END",
    "spark_array_contains(list, item) AS CASE WHEN list IS NULL OR item IS NULL THEN NULL "
    "WHEN list_contains(list, item) THEN true WHEN len(list_filter(list, lambda one: one IS NULL)) = 0 THEN false END",
    f"spark_flatten(lists) AS CASE WHEN {_HAS_NULL.format('lists')} THEN NULL ELSE flatten(lists) END",
    f"spark_sequence(first, last) AS CASE WHEN abs(last - first) > {MOST_ELEMENTS} THEN error('a long sequence') "
    "WHEN first <= last THEN generate_series(first, last) ELSE generate_series(first, last, -1) END",
    "spark_length(value) AS CASE WHEN typeof(value) = 'BLOB' THEN octet_length(CAST(value AS BLOB)) "
    "ELSE length(CAST(value AS VARCHAR)) END",
    "spark_bigint_or_null(value) AS TRY_CAST(value AS BIGINT)",
    "spark_round(value, places) AS CAST(round(CAST(CAST(value AS VARCHAR) AS DECIMAL(38, 20)), places) AS DOUBLE)",
    "spark_other_text(value, kind) AS list_transform([value], lambda text: CASE WHEN text IS NULL THEN NULL "
    "WHEN kind = 'DOUBLE' AND (TRY_CAST(text AS DOUBLE) = 0 OR abs(TRY_CAST(text AS DOUBLE)) >= 1e-3 "
    "AND abs(TRY_CAST(text AS DOUBLE)) < 1e7) OR kind IN ('TIMESTAMP', 'DATE') AND length(text) <= 26 "
    "AND regexp_matches(text, '^[0-9]{4}-[0-9: .-]*$') THEN text "
    f"ELSE {_REFUSED.format('text', 'another text')} END)[1]",
    f"spark_text(value) AS CASE WHEN typeof(value) IN ({_PLAIN}) THEN CAST(value AS VARCHAR) "
    f"ELSE spark_other_text(CAST(value AS VARCHAR), typeof(value)) END",
    "spark_date(value) AS CASE WHEN year(value) BETWEEN 1 AND 9999 OR value IS NULL THEN value "
    f"ELSE {_REFUSED.format('value', 'a year')} END",
    "spark_seconds(first, last) AS (epoch_us(last) - epoch_us(first)) // 1000000",
    "spark_try_int(value) AS CASE WHEN regexp_full_match(value, '[+-]?[0-9]+') THEN TRY_CAST(value AS INT) "
    f"WHEN {_SPACED} THEN {_REFUSED.format('value', 'space around a number')} END",
    "spark_try_bigint(value) AS CASE WHEN regexp_full_match(value, '[+-]?[0-9]+') THEN TRY_CAST(value AS BIGINT) "
    f"WHEN {_SPACED} THEN {_REFUSED.format('value', 'space around a number')} END",
    "spark_try_boolean(value) AS CASE WHEN lower(value) IN ('t', 'true', 'y', 'yes', '1') THEN true "
    "WHEN lower(value) IN ('f', 'false', 'n', 'no', '0') THEN false "
    f"WHEN {_SPACED} THEN {_REFUSED.format('value', 'space around a word')} END",
    "spark_bigint(value) AS CASE WHEN typeof(value) = 'DOUBLE' THEN CAST(trunc(CAST(value AS DOUBLE)) AS BIGINT) "
    "WHEN typeof(value) <> 'VARCHAR' OR regexp_full_match(CAST(value AS VARCHAR), '[+-]?[0-9]+') "
    f"THEN CAST(value AS BIGINT) WHEN value IS NOT NULL THEN {_REFUSED.format('value', 'no number')} END",
    "spark_sum(total) AS CASE WHEN typeof(total) = 'HUGEINT' AND (total > 9223372036854775807 "
    f"OR total < -9223372036854775808) THEN {_REFUSED.format('total', 'no 64-bit number')} ELSE total END",
    "spark_array_join(list, between) AS coalesce(array_to_string(list, between), "
    "CASE WHEN list IS NOT NULL AND between IS NOT NULL THEN '' END)",
    "spark_binary(value) AS CASE WHEN typeof(value) = 'VARCHAR' THEN encode(CAST(value AS VARCHAR)) "
    "ELSE CAST(value AS BLOB) END",
    "spark_utf8_or_null(value) AS TRY(decode(value))",
    "spark_bytes(value, first, many) AS value[CAST(first AS BIGINT) : CAST(first + many - 1 AS BIGINT)]",
    "spark_of_hex(value) AS CAST('0x' || value AS BIGINT)",
    "spark_json(value) AS CASE WHEN typeof(value) = 'VARCHAR[]' THEN CAST(to_json(value) AS VARCHAR) "
    "ELSE error('JSON of other values than texts') END",
    "spark_timestamp_micros(value) AS make_timestamp(value)",
    "spark_pmod(dividend, divisor) AS CASE WHEN divisor = 0 THEN error('division by zero') "
    "WHEN dividend % divisor < 0 THEN (dividend % divisor + divisor) % divisor ELSE dividend % divisor END",
    f"spark_xxhash64(value) AS coalesce(xxhash64_of(spark_binary(value)), {SEED})",
    "spark_get(list, index) AS CASE WHEN index >= 0 THEN list[index + 1] END",
    "spark_set(list) AS list_distinct(list) || CASE WHEN list_count(list) < len(list) THEN [NULL] ELSE [] END",
    # The list becomes an item of one more list, so that it is computed once.
    "spark_array_distinct(list) AS list_transform([list], lambda it: CASE WHEN len(it) < 2 THEN it ELSE "
    "list_transform(list_sort(list_transform(list_distinct(it), lambda one: list_position(it, one)) || "
    "list_filter([list_position(it, NULL)], lambda one: one > 0)), lambda index: it[index]) END)[1]",
    f"spark_arrays_overlap(one, other) AS CASE WHEN list_has_any(one, other) THEN true WHEN len(one) > 0 "
    f"AND len(other) > 0 AND ({_HAS_NULL.format('one')} OR {_HAS_NULL.format('other')}) THEN NULL "
    "WHEN one IS NOT NULL AND other IS NOT NULL THEN false END",
    "spark_between(below, above, part) AS "
    "CASE WHEN below = above OR part = 0 THEN below ELSE (1 - part) * below + part * above END",
    "spark_of_sorted(sorted, nth) AS spark_between(sorted[CAST(floor(nth) AS BIGINT) + 1], "
    "sorted[CAST(ceil(nth) AS BIGINT) + 1], nth - floor(nth))",
    "spark_share_of_sorted(sorted, share) AS spark_of_sorted(sorted, (len(sorted) - 1) * CAST(share AS DOUBLE))",
    "spark_percentile(value, share) AS "
    "spark_share_of_sorted(list_sort(list(CAST(value AS DOUBLE)) FILTER (WHERE value IS NOT NULL)), share)",
    "spark_ordered(value) AS CASE WHEN (typeof(value) LIKE 'STRUCT%' OR typeof(value) LIKE '%[]') "
    f"AND contains(CAST(value AS VARCHAR), 'NULL') THEN {_REFUSED.format('value', _NO_ORDER)} ELSE value END",
    "spark_ordered_items(list) AS CASE WHEN (typeof(list) LIKE 'STRUCT%' OR typeof(list) LIKE '%[][]') "
    f"AND contains(CAST(list AS VARCHAR), 'NULL') THEN {_REFUSED.format('list', _NO_ORDER)} ELSE list END",
)
"""What follows ``CREATE MACRO``: functions of DuckDB that do what Spark's do."""
