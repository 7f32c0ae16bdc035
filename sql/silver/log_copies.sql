-- Purpose: for each landed segment, the offsets that another landed copy of the same log supersedes.
-- Grain: cluster, segment.
-- Parameters: {log_files}, {record_batches}, {held_record_batches}, rows of silver.log_files, silver.record_batches and
-- held.record_batches, complete for each topic in them.
-- Engine: duckdb
-- Refresh: topic
-- The latest version of a file represents it, of which no batch is held: what waits supersedes nothing. If files cover the same offsets, the one that was modified last
-- supersedes the others, unless it is an old copy that came late: its leader epoch at these offsets is lower, and its
-- timestamps are no later. It then ranks behind the copy that shows this. A file also covers the offsets between its
-- batches if these are adjacent in the file: a hole is information, too.
-- A topic that is created again has another topic id: copies with an older id count nowhere. Leader epochs rise along a
-- log: if a copy of higher rank has a batch of a higher epoch, batches of lower epochs behind it were truncated.
-- If a file is copied again unchanged, or grows alone, only its own row can change, so that nothing else is computed
-- again. Batches are read only for files that meet.
WITH waiting AS (
  SELECT cluster, _source, min(version) AS version
  FROM {held_record_batches}
  GROUP BY cluster, _source
),
latest AS (
  SELECT
    files.cluster,
    files.topic,
    files.partition,
    files._source AS segment,
    max_by(
      struct(
        topic_id, first_version, batch_count, covered, modified_ns, greatest_timestamp, least_epoch, greatest_epoch,
        greatest_epoch_offset
      ),
      files.version
    ) AS file
  FROM {log_files} AS files
  LEFT JOIN waiting ON waiting.cluster = files.cluster AND waiting._source = files._source
  WHERE coalesce(files.version < waiting.version, true)
  GROUP BY files.cluster, files.topic, files.partition, files._source
),
logs AS (
  SELECT
    cluster,
    topic,
    partition,
    collect_list(struct(
      segment,
      file.topic_id AS topic_id,
      file.first_version AS first_version,
      file.batch_count AS batch_count,
      file.covered AS covered,
      get(file.covered, 0).first_offset AS first_offset,
      get(file.covered, size(file.covered) - 1).last_offset AS last_offset,
      file.modified_ns AS modified_ns,
      file.greatest_timestamp AS greatest_timestamp,
      file.least_epoch AS least_epoch,
      file.greatest_epoch AS greatest_epoch,
      file.greatest_epoch_offset AS greatest_epoch_offset
    )) AS copies
  FROM latest
  GROUP BY cluster, topic, partition
),
-- Files that meet: they have offsets in common, or one has lower epochs behind the greatest epoch of the other.
meetings AS (
  SELECT
    cluster,
    topic,
    partition,
    inline(flatten(transform(copies, one -> transform(
      filter(
        copies,
        other -> other.segment <> one.segment AND (
          (other.first_offset <= one.last_offset AND one.first_offset <= other.last_offset)
          OR (other.greatest_epoch > one.least_epoch AND other.greatest_epoch_offset < one.last_offset)
        )
      ),
      other -> struct(
        one.segment AS segment,
        one.first_version AS first_version,
        other.segment AS other,
        greatest(one.first_offset, other.first_offset) AS first_common,
        least(one.last_offset, other.last_offset) AS last_common,
        other.greatest_epoch AS other_epoch,
        other.greatest_epoch_offset AS other_epoch_offset,
        IF(other.modified_ns < one.modified_ns, other.modified_ns, NULL) AS behind_ns
      )
    ))))
  FROM logs
),
batches AS (
  SELECT
    cluster,
    _source AS segment,
    coalesce(version, 0) AS version,
    base_offset,
    last_offset,
    partition_leader_epoch AS epoch,
    coalesce(max_timestamp, TIMESTAMP '1970-01-01 00:00:00') AS written_at
  FROM {record_batches}
  WHERE base_offset IS NOT NULL
),
shown AS (
  SELECT
    meetings.cluster,
    meetings.topic,
    meetings.partition,
    meetings.segment,
    meetings.other,
    any_value(behind_ns) AS behind_ns,
    max(IF(base_offset <= last_common AND last_offset >= first_common, epoch, NULL)) AS epoch,
    max(IF(base_offset <= last_common AND last_offset >= first_common, written_at, NULL)) AS written_at,
    min(IF(base_offset > other_epoch_offset AND epoch >= 0 AND epoch < other_epoch, base_offset, NULL)) AS cut_offset
  FROM meetings
  JOIN batches
    ON batches.cluster = meetings.cluster
      AND batches.segment = meetings.segment
      AND batches.version >= meetings.first_version
  GROUP BY meetings.cluster, meetings.topic, meetings.partition, meetings.segment, meetings.other
),
told AS (
  SELECT
    cluster, topic, partition, collect_list(struct(segment, other, behind_ns, epoch, written_at, cut_offset)) AS facts
  FROM shown
  GROUP BY cluster, topic, partition
),
dated AS (
  SELECT
    logs.cluster,
    logs.topic,
    logs.partition,
    facts,
    transform(copies, one -> struct(one AS copy, array_min(transform(
      filter(
        facts,
        own -> own.segment = one.segment AND own.behind_ns IS NOT NULL AND exists(
          facts,
          its -> its.segment = own.other
            AND its.other = own.segment
            AND own.epoch < its.epoch
            AND own.written_at <= its.written_at
        )
      ),
      own -> own.behind_ns
    )) AS behind_ns)) AS copies
  FROM logs
  LEFT JOIN told ON told.cluster = logs.cluster AND told.topic = logs.topic AND told.partition = logs.partition
),
ordered AS (
  SELECT
    cluster,
    topic,
    partition,
    facts,
    sort_array(transform(copies, one -> struct(
      coalesce(one.behind_ns, one.copy.modified_ns) AS at,
      one.behind_ns IS NULL AS is_in_time,
      IF(one.behind_ns IS NULL, -1, one.copy.greatest_epoch) AS epoch,
      one.copy.modified_ns AS modified_ns,
      one.copy.greatest_epoch AS greatest_epoch,
      one.copy.greatest_timestamp AS greatest_timestamp,
      one.copy.segment AS segment,
      one.copy AS copy
    )), false) AS copies
  FROM dated
),
sorted AS (
  SELECT *, get(filter(copies, one -> one.copy.topic_id IS NOT NULL), 0).copy.topic_id AS newest_topic_id
  FROM ordered
),
placed AS (
  SELECT
    cluster,
    topic,
    partition,
    facts,
    one.copy AS copy,
    NOT one.is_in_time AS came_late,
    coalesce(one.copy.topic_id <> newest_topic_id, false) AS is_of_older_topic,
    filter(slice(copies, 1, place), other -> coalesce(other.copy.topic_id = newest_topic_id, true)) AS above
  FROM sorted LATERAL VIEW posexplode(copies) AS place, one
)
SELECT
  cluster,
  copy.segment AS segment,
  topic,
  partition,
  copy.topic_id AS topic_id,
  copy.first_version AS first_version,
  copy.batch_count AS batch_count,
  copy.first_offset AS first_offset,
  copy.last_offset AS last_offset,
  nullif(copy.greatest_epoch, -1) AS leader_epoch,
  came_late,
  is_of_older_topic,
  array_sort(flatten(transform(above, other -> transform(
    filter(
      other.copy.covered, run -> run.first_offset <= copy.last_offset AND copy.first_offset <= run.last_offset
    ),
    run -> struct(
      greatest(run.first_offset, copy.first_offset) AS first_offset,
      least(run.last_offset, copy.last_offset) AS last_offset
    )
  )))) AS superseded_ranges,
  array_min(transform(
    filter(
      facts,
      own -> own.segment = copy.segment AND exists(above, other -> other.copy.segment = own.other)
    ),
    own -> own.cut_offset
  )) AS truncated_from
FROM placed
