-- Purpose: facts that must be 0 before silver.log_copies is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {log_files}, {held_record_batches} rows of these tables of the topics that are refreshed; {fresh} the new
-- rows; {record_batches}.
SELECT
  (SELECT count(DISTINCT cluster, _source) FROM {log_files})
    - (SELECT count(*)
       FROM (SELECT cluster, _source, min(version) AS version FROM {log_files} GROUP BY cluster, _source) AS first
       JOIN (
         SELECT cluster, _source, min(version) AS version FROM {held_record_batches} GROUP BY cluster, _source
       ) AS waiting
         ON waiting.cluster = first.cluster AND waiting._source = first._source AND waiting.version <= first.version)
    - (SELECT count(*) FROM {fresh}) AS `segment_count.difference`
