-- Purpose: what the dead letters of one error have in common, by slice of their source and half hour, so that incidents
-- are found without reading the dead letters again.
-- Grain: cluster, source_slice, fingerprint, half_hour.
-- Parameters: {dlq_records}, {dlq_control_markers}, rows of these silver tables, complete for each slice that is in
-- them.
-- Engine: duckdb, in parts
-- Refresh: source_slice
--   silver.dlq_records: concat(lpad(original_offset div 1000, 16, '0'), ':', original_partition, ':', original_topic)
--   silver.dlq_control_markers: source_slice
-- The fingerprint is a hash of the version of the algorithm at the time when the record was accepted, cluster, group,
-- source topic, disposition and signature of the error: the classes of the exception and of its cause; the pattern of
-- the message and the top frame of the stack trace (pipelines/incidents/signature.py, which has their expressions); and
-- the owner, if it is known and is no group.
-- Records from before the column `owner` keep the fingerprint that they had. Two records of one fingerprint that are less than
-- half an hour apart are never in different incidents, so a row is never in two.
-- Each record gives several facts, and a row counts all facts of its records: minutes, source offsets, hashes of keys,
-- DLQ topics, and attributes (headers, schema ids of Confluent's wire format, prefixes of keys) as hashes of their
-- values.
WITH records AS (
  SELECT
    records.cluster,
    concat(lpad(original_offset div 1000, 16, '0'), ':', original_partition, ':', original_topic) AS source_slice,
    consumer_group,
    original_topic,
    disposition,
    disposition_source,
    exception_class,
    exception_cause_class,
    {error_pattern} AS error_pattern,
    {error_frame} AS error_frame,
    original_partition,
    original_offset,
    unix_micros(coalesce(routed_at, dlq_timestamp, _ingested_at)) AS at,
    dlq_topic,
    payload_copied,
    delivery_count,
    control_marker_suspected,
    key,
    value,
    user_headers,
    coalesce(fingerprint_version, 1) AS algorithm_version,
    coalesce(consumer_group, owner) AS owner,
    records._bronze_id
  FROM {dlq_records} AS records
  LEFT ANTI JOIN {dlq_control_markers} AS markers
    ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
),
signed AS (
  SELECT
    cluster,
    source_slice,
    {fingerprint} AS fingerprint,
    at - pmod(at, 1800000000) AS half_hour,
    at,
    struct(
      consumer_group, original_topic, disposition, exception_class, exception_cause_class, error_pattern, error_frame,
      original_partition, algorithm_version, owner
    ) AS signature,
    NOT payload_copied AS lacks_payload,
    disposition_source = 'message' AS is_inferred,
    coalesce(control_marker_suspected, false) AS is_suspected,
    delivery_count,
    key IS NOT NULL AS has_key,
    IF(source_slice IS NULL, 'unplaced', 'offset') AS source_kind,
    IF(source_slice IS NULL, xxhash64(_bronze_id), original_offset) AS source,
    concat(
      array(
        struct('minute' AS kind, '' AS name, at - pmod(at, 60000000) AS value),
        struct('dlq_topic' AS kind, dlq_topic AS name, CAST(0 AS BIGINT) AS value)
      ),
      IF(key IS NULL, array(), array(struct('key' AS kind, '' AS name, xxhash64(key) AS value))),
      IF(
        regexp_extract(try_validate_utf8(CAST(key AS STRING)), r'^([A-Za-z]+)[-_:/.|#]', 1) <> '',
        array(struct(
          'key_prefix' AS kind,
          '' AS name,
          xxhash64(regexp_extract(try_validate_utf8(CAST(key AS STRING)), r'^([A-Za-z]+)', 1)) AS value
        )),
        array()
      ),
      IF(
        length(value) >= 5 AND substring(value, 1, 1) = X'00',
        array(struct(
          'schema_id' AS kind, 'value' AS name, CAST(conv(hex(substring(value, 2, 4)), 16, 10) AS BIGINT) AS value
        )),
        array()
      ),
      IF(
        length(key) >= 5 AND substring(key, 1, 1) = X'00',
        array(struct(
          'schema_id' AS kind, 'key' AS name, CAST(conv(hex(substring(key, 2, 4)), 16, 10) AS BIGINT) AS value
        )),
        array()
      ),
      IF(
        coalesce(size(user_headers), 0) = 0,
        array(),
        array_distinct(transform(
          slice(user_headers, 1, 32), one -> struct('header' AS kind, one.key AS name, xxhash64(one.value) AS value)
        ))
      )
    ) AS facts
  FROM records
),
facts AS (
  SELECT
    cluster,
    source_slice,
    fingerprint,
    half_hour,
    fact.kind,
    fact.name,
    fact.value,
    IF(fact.kind = 'minute', signature, NULL) AS signature,
    count(*) AS record_count,
    min(at) AS first_at,
    max(at) AS last_at,
    count_if(lacks_payload) AS without_payload_count,
    count_if(is_inferred) AS inferred_count,
    count_if(is_suspected) AS suspected_count,
    count_if(has_key) AS keyed_count,
    max(delivery_count) AS most_deliveries
  FROM signed LATERAL VIEW explode(facts) AS fact
  GROUP BY
    cluster, source_slice, fingerprint, half_hour, fact.kind, fact.name, fact.value, IF(fact.kind = 'minute', signature, NULL)
),
sources AS (
  SELECT cluster, source_slice, fingerprint, half_hour, source_kind AS kind, source AS value, count(*) AS record_count
  FROM signed
  GROUP BY cluster, source_slice, fingerprint, half_hour, source_kind, source
),
placed AS (
  SELECT
    *,
    lag(half_hour) OVER (
      PARTITION BY cluster, source_slice, fingerprint, kind, value ORDER BY half_hour
    ) AS half_hour_before
  FROM sources
),
neighbours AS (
  SELECT
    *,
    IF(kind = 'offset', value - (lag(value) OVER in_order), NULL) AS step,
    IF(kind = 'offset', least(
      (lead(value, 4) OVER in_order) - value,
      value - (lag(value, 4) OVER in_order),
      (lead(value, 2) OVER in_order) - (lag(value, 2) OVER in_order)
    ), NULL) AS span_of_five,
    IF(kind = 'offset', least(
      (lead(value, 8) OVER in_order) - value,
      value - (lag(value, 8) OVER in_order),
      (lead(value, 4) OVER in_order) - (lag(value, 4) OVER in_order)
    ), NULL) AS span_of_nine
  FROM placed
  WINDOW in_order AS (PARTITION BY cluster, source_slice, fingerprint, half_hour, kind ORDER BY value)
),
of_sources AS (
  SELECT
    cluster,
    source_slice,
    fingerprint,
    half_hour,
    count(*) AS source_record_count,
    min(value) FILTER (WHERE kind = 'offset') AS first_offset,
    max(value) FILTER (WHERE kind = 'offset') AS last_offset,
    sort_array(collect_list(half_hour_before)) AS seen_before,
    count_if(span_of_five <= 5) AS dense_count,
    count_if(span_of_nine <= 80) AS scattered_count,
    sum(span_of_nine) FILTER (WHERE span_of_nine <= 80) AS scattered_span,
    count_if(step = 2) AS step_of_two_count,
    count_if(step = 3) AS step_of_three_count,
    slice(sort_array(
      collect_list(struct(-record_count AS negative, value)) FILTER (WHERE kind = 'offset')
    ), 1, 12) AS top_offsets
  FROM neighbours
  GROUP BY cluster, source_slice, fingerprint, half_hour
),
of_facts AS (
  SELECT
    cluster,
    source_slice,
    fingerprint,
    half_hour,
    any_value(signature) FILTER (WHERE kind = 'minute') AS signature,
    max(signature.original_partition) AS original_partition,
    sum(record_count) FILTER (WHERE kind = 'minute') AS record_count,
    timestamp_micros(min(first_at)) AS first_at,
    timestamp_micros(max(last_at)) AS last_at,
    sort_array(collect_list(struct(value AS minute, first_at, last_at, record_count)) FILTER (WHERE kind = 'minute'))
      AS minutes,
    slice(sort_array(
      collect_list(struct(-record_count AS negative, value)) FILTER (WHERE kind = 'key')
    ), 1, 8) AS top_keys,
    slice(sort_array(collect_list(value) FILTER (WHERE kind = 'key')), 1, 64) AS least_keys,
    sum(keyed_count) FILTER (WHERE kind = 'minute') AS keyed_count,
    slice(sort_array(
      collect_list(struct(-record_count AS negative, kind, name, value)) FILTER (
        WHERE kind IN ('header', 'schema_id', 'key_prefix')
      )
    ), 1, 24) AS attributes,
    sort_array(collect_list(struct(name AS dlq_topic, last_at)) FILTER (WHERE kind = 'dlq_topic')) AS dlq_topics,
    sum(without_payload_count) FILTER (WHERE kind = 'minute') AS without_payload_count,
    sum(inferred_count) FILTER (WHERE kind = 'minute') AS inferred_count,
    sum(suspected_count) FILTER (WHERE kind = 'minute') AS suspected_count,
    max(most_deliveries) AS most_deliveries
  FROM facts
  GROUP BY cluster, source_slice, fingerprint, half_hour
)
SELECT
  of_facts.cluster,
  of_facts.source_slice,
  of_facts.fingerprint,
  timestamp_micros(of_facts.half_hour) AS half_hour,
  -- Only the partition can differ, among records without a slice.
  of_facts.signature.consumer_group AS consumer_group,
  of_facts.signature.original_topic AS original_topic,
  of_facts.signature.disposition AS disposition,
  of_facts.signature.exception_class AS exception_class,
  of_facts.signature.exception_cause_class AS exception_cause_class,
  of_facts.signature.error_pattern AS error_pattern,
  of_facts.signature.error_frame AS error_frame,
  of_facts.signature.algorithm_version AS algorithm_version,
  of_facts.* EXCEPT (cluster, source_slice, fingerprint, half_hour, signature),
  of_sources.* EXCEPT (cluster, source_slice, fingerprint, half_hour),
  of_facts.signature.owner AS owner
FROM of_facts
-- `=` would make Spark look for null fingerprints first, in filters that compute each of them once more.
JOIN of_sources
  ON of_sources.cluster <=> of_facts.cluster
    AND of_sources.source_slice <=> of_facts.source_slice
    AND of_sources.fingerprint <=> of_facts.fingerprint
    AND of_sources.half_hour <=> of_facts.half_hour
