-- Purpose: groups whose dead letters would be lost or useless with the settings as they are, and what to do about it.
-- Grain: cluster, kind, group_id.
-- Parameters: {dlq_settings}, {cluster_settings}, rows of these silver tables, complete for each cluster in them.
-- Engine: duckdb
-- Refresh: cluster
-- Brokers dead-letter records of share groups only (KIP-1191). A write that fails loses the record: nobody is told.
-- An unknown value is no mistake, and what is not there has no settings. A mistake lasts since the last of the settings
-- that it consists of took its value, wherever Kafka has the value from; of brokers, the first that makes it counts.
-- With the feature eligible.leader.replicas, brokers ask for no more replicas in sync than a topic has.
WITH valued AS (
  SELECT
    cluster, kind, name, setting,
    max_by(value, since) AS value,
    coalesce(max(IF(NOT value <=> previous_value, since, NULL)), min(since)) AS since
  FROM {dlq_settings}
  GROUP BY cluster, kind, name, setting
),
stated AS (
  SELECT
    *,
    max(IF(setting = 'state', value, NULL)) OVER of_name AS state,
    max(IF(setting = 'state', since, NULL)) OVER of_name AS state_since
  FROM valued
  WINDOW of_name AS (PARTITION BY cluster, kind, name)
),
current AS (
  SELECT cluster, kind, name, setting, value, greatest(since, state_since) AS since
  FROM stated
  WHERE setting = 'state' OR state = 'present'
),
seen AS (
  SELECT cluster, max(observed_at) AS last_seen_at FROM {cluster_settings} GROUP BY cluster
),
brokers AS (
  SELECT
    cluster,
    bool_and(try_cast(IF(setting = 'errors.deadletterqueue.auto.create.topics.enable', value, NULL) AS BOOLEAN))
      AS creates_topics,
    coalesce(
      min(IF(
        setting = 'errors.deadletterqueue.auto.create.topics.enable' AND NOT try_cast(value AS BOOLEAN), since, NULL
      )),
      max(IF(setting = 'errors.deadletterqueue.auto.create.topics.enable', since, NULL))
    ) AS creates_topics_since,
    array_sort(collect_set(IF(
      setting = 'errors.deadletterqueue.topic.name.prefix' AND value IS NOT NULL, struct(value AS prefix, since), NULL
    ))) AS prefixes
  FROM current
  WHERE kind = 'broker'
  GROUP BY cluster
),
clusters AS (
  SELECT
    cluster,
    max(IF(setting = 'bootstrap_servers', value, NULL)) AS servers,
    max(IF(setting = 'share.version', try_cast(value AS INT), NULL)) AS share_version,
    max(IF(setting = 'share.version', since, NULL)) AS share_version_since
  FROM current
  WHERE kind = 'cluster'
  GROUP BY cluster
),
topics AS (
  SELECT
    cluster,
    name AS topic,
    max(IF(setting = 'state', value, NULL)) AS state,
    max(IF(setting = 'state', since, NULL)) AS state_since,
    max(IF(setting = 'errors.deadletterqueue.group.enable', value, NULL)) AS is_enabled,
    max(IF(setting = 'errors.deadletterqueue.group.enable', since, NULL)) AS is_enabled_since,
    max(IF(setting = 'cleanup.policy', value, NULL)) AS policy,
    max(IF(setting = 'cleanup.policy', since, NULL)) AS policy_since,
    max(IF(setting = 'max.message.bytes', try_cast(value AS BIGINT), NULL)) AS most_bytes,
    max(IF(setting = 'max.message.bytes', since, NULL)) AS most_bytes_since,
    -- -1 keeps records for ever.
    max(IF(setting = 'retention.ms', IF(value = '-1', 9223372036854775807, try_cast(value AS BIGINT)), NULL))
      AS kept_ms,
    max(IF(setting = 'retention.ms', since, NULL)) AS kept_since,
    max(IF(setting = 'min.insync.replicas', try_cast(value AS INT), NULL)) AS wanted_in_sync,
    max(IF(setting = 'in_sync_replicas', try_cast(value AS INT), NULL)) AS in_sync,
    max(IF(setting = 'replicas', try_cast(value AS INT), NULL)) AS replicas,
    max(IF(setting IN ('min.insync.replicas', 'in_sync_replicas'), since, NULL)) AS in_sync_since,
    max(IF(setting = 'partitions', value, NULL)) AS partitions,
    max(IF(setting = 'is_outrun', value, NULL)) AS is_outrun,
    max(IF(setting = 'is_outrun', since, NULL)) AS is_outrun_since
  FROM current
  WHERE kind = 'topic'
  GROUP BY cluster, name
),
groups AS (
  SELECT
    cluster,
    name AS group_id,
    max(IF(setting = 'errors.deadletterqueue.topic.name', value, NULL)) AS dlq_topic,
    max(IF(setting = 'errors.deadletterqueue.topic.name', since, NULL)) AS dlq_topic_since,
    max(IF(setting = 'errors.deadletterqueue.copy.record.enable', value, NULL)) AS copies,
    max(IF(setting = 'errors.deadletterqueue.copy.record.enable', since, NULL)) AS copies_since,
    max(IF(setting = 'share.isolation.level', value, NULL)) AS isolation,
    max(IF(setting = 'share.isolation.level', since, NULL)) AS isolation_since,
    max(IF(setting = 'group_type', value, NULL)) AS group_type,
    max(IF(setting = 'group_type', since, NULL)) AS group_type_since,
    max(IF(setting = 'sources', value, NULL)) AS sources,
    max(IF(setting = 'state', since, NULL)) AS present_since
  FROM current
  WHERE kind = 'group'
  GROUP BY cluster, name
  HAVING dlq_topic <> '' AND max(IF(setting = 'state', value, NULL)) <> 'missing'
),
settled AS (
  SELECT
    groups.*,
    coalesce(topics.state, 'unknown') AS state, state_since, is_enabled, is_enabled_since, policy, policy_since,
    most_bytes, most_bytes_since, kept_ms, kept_since, wanted_in_sync, in_sync, replicas, in_sync_since, is_outrun,
    is_outrun_since, creates_topics, creates_topics_since, share_version, share_version_since,
    last_seen_at,
    array_contains(split(policy, ' *, *'), 'compact') AS is_compacted,
    array_contains(split(policy, ' *, *'), 'delete') AS is_deleting,
    filter(prefixes, one -> NOT startswith(dlq_topic, one.prefix)) AS broken_prefixes,
    -- Names come from outside: in a shell's quotes nothing but the quote itself is special.
    transform(
      array(dlq_topic, group_id, servers),
      word -> concat(chr(39), replace(word, chr(39), concat(chr(39), chr(92), chr(39), chr(39))), chr(39))
    ) AS quoted,
    get(quoted, 0) AS quoted_topic,
    coalesce(IF(servers RLIKE '^[A-Za-z0-9._:,-]+$', servers, get(quoted, 2)), 'HOST:9092') AS at_servers,
    concat(
      'kafka-configs.sh --bootstrap-server ', at_servers, ' --alter --entity-type groups --entity-name ',
      get(quoted, 1), ' --add-config '
    ) AS set_group,
    concat('kafka-configs.sh --bootstrap-server ', at_servers, ' --alter --entity-type topics') AS set_topic,
    concat('kafka-topics.sh --bootstrap-server ', at_servers) AS of_topics,
    concat('kafka-features.sh --bootstrap-server ', at_servers) AS of_features,
    regexp_replace(concat(coalesce(get(prefixes, 0).prefix, 'dlq.'), group_id), '[^A-Za-z0-9._-]', '-') AS own_name
  FROM groups
  LEFT JOIN topics ON topics.cluster = groups.cluster AND topics.topic = groups.dlq_topic
  LEFT JOIN brokers ON brokers.cluster = groups.cluster
  LEFT JOIN clusters ON clusters.cluster = groups.cluster
  JOIN seen ON seen.cluster = groups.cluster
),
reads AS (
  SELECT
    cluster, group_id, present_since, dlq_topic, most_bytes AS dlq_most_bytes, kept_ms AS dlq_kept_ms,
    explode(array_distinct(split(sources, ','))) AS source_topic
  FROM settled
),
read_since AS (
  SELECT
    reads.*,
    greatest(
      present_since, coalesce(max(IF(array_contains(split(value, ','), source_topic), NULL, until)), min(since))
    ) AS read_since
  FROM reads
  JOIN {dlq_settings} AS known
    ON known.cluster = reads.cluster AND known.kind = 'group' AND known.name = group_id AND known.setting = 'sources'
  GROUP BY
    reads.cluster, group_id, present_since, dlq_topic, dlq_most_bytes, dlq_kept_ms, source_topic
),
sources AS (
  SELECT
    reads.cluster,
    reads.group_id,
    max(IF(source_topic = dlq_topic, read_since, NULL)) AS looped_since,
    max(IF(
      most_bytes > dlq_most_bytes,
      struct(most_bytes AS most, topic, greatest(most_bytes_since, read_since) AS since), NULL
    )) AS larger,
    max(IF(
      kept_ms > dlq_kept_ms AND is_dlq IS NULL AND array_contains(split(policy, ' *, *'), 'delete'),
      struct(kept_ms AS most, topic, greatest(kept_since, policy_since, read_since) AS since), NULL
    )) AS longer,
    min(IF(
      is_dlq AND topic <> dlq_topic AND kept_ms <= dlq_kept_ms AND kept_ms < 9223372036854775807,
      struct(topic, greatest(kept_since, read_since, is_dlq_since) AS since), NULL
    )) AS first_hop,
    max(most_bytes) AS most_bytes,
    max(try_cast(partitions AS INT)) AS partitions
  FROM read_since AS reads
  LEFT JOIN topics ON topics.cluster = reads.cluster AND topics.topic = reads.source_topic
  LEFT JOIN (
    SELECT cluster, dlq_topic AS read_topic, true AS is_dlq, min(dlq_topic_since) AS is_dlq_since
    FROM groups
    GROUP BY cluster, dlq_topic
  ) AS dead_lettered
    ON dead_lettered.cluster = reads.cluster AND dead_lettered.read_topic = reads.source_topic
  GROUP BY reads.cluster, reads.group_id
),
judged AS (
  SELECT settled.*, looped_since, larger, longer, first_hop, sources.most_bytes AS source_bytes, partitions
  FROM settled
  LEFT JOIN sources ON sources.cluster = settled.cluster AND sources.group_id = settled.group_id
)
SELECT
  cluster,
  finding.kind AS kind,
  group_id,
  dlq_topic,
  finding.source_topic AS source_topic,
  finding.severity AS severity,
  finding.since AS since,
  greatest(last_seen_at, finding.since) AS last_seen_at,
  finding.evidence AS evidence,
  finding.remedy AS remedy
FROM judged
  LATERAL VIEW explode(array(
    IF(share_version < 2, named_struct(
      'kind', 'SHARE_VERSION',
      'source_topic', CAST(NULL AS STRING),
      'severity', 'critical',
      'since', greatest(dlq_topic_since, share_version_since),
      'evidence', concat('The feature share.version is ', share_version, ', and brokers dead-letter from 2 on: ',
        'records that are rejected are gone.'),
      'remedy', concat(of_features, ' upgrade --feature share.version=2')
    ), NULL),
    IF(group_type <> 'SHARE', named_struct(
      'kind', 'NOT_A_SHARE_GROUP',
      'source_topic', CAST(NULL AS STRING),
      'severity', 'high',
      'since', greatest(dlq_topic_since, group_type_since),
      'evidence', concat('The group is of type ', group_type, ', and brokers dead-letter records of share groups ',
        'only: nothing ever reaches the topic.'),
      'remedy', replace(concat(set_group, 'errors.deadletterqueue.topic.name'), '--add-config', '--delete-config')
    ), NULL),
    IF(size(broken_prefixes) > 0, named_struct(
      'kind', 'WRONG_PREFIX',
      'source_topic', CAST(NULL AS STRING),
      'severity', 'critical',
      'since', greatest(dlq_topic_since, array_min(transform(broken_prefixes, one -> one.since))),
      'evidence', concat('The name of the DLQ topic does not begin with ', get(broken_prefixes, 0).prefix,
        ', as brokers ask by errors.deadletterqueue.topic.name.prefix: they refuse to write, and ',
        'dead letters are lost.'),
      'remedy', concat(set_group, chr(39), 'errors.deadletterqueue.topic.name=',
        replace(concat(get(broken_prefixes, 0).prefix, dlq_topic), chr(39), ''), chr(39))
    ), NULL),
    IF(state = 'missing' AND NOT creates_topics <=> true AND coalesce(size(broken_prefixes), 0) = 0, named_struct(
      'kind', 'DLQ_MISSING',
      'source_topic', CAST(NULL AS STRING),
      'severity', IF(creates_topics IS NULL, 'high', 'critical'),
      'since', greatest(dlq_topic_since, state_since, creates_topics_since),
      'evidence', concat('The DLQ topic does not exist, ', IF(creates_topics IS NULL,
        'and Afterlog cannot see whether brokers create it: if not, dead letters are lost.',
        'and brokers do not create it (errors.deadletterqueue.auto.create.topics.enable): dead letters are lost.')),
      'remedy', concat(of_topics, ' --create --topic ', quoted_topic,
        coalesce(concat(' --partitions ', partitions), ''), ' --config errors.deadletterqueue.group.enable=true',
        coalesce(concat(' --config max.message.bytes=', source_bytes), ''))
    ), NULL),
    IF(is_enabled = 'false', named_struct(
      'kind', 'DLQ_NOT_ENABLED',
      'source_topic', CAST(NULL AS STRING),
      'severity', 'critical',
      'since', greatest(dlq_topic_since, is_enabled_since),
      'evidence', concat('The topic does not let groups dead-letter to it (errors.deadletterqueue.group.enable): ',
        'dead letters are lost.'),
      'remedy', concat(set_topic, ' --entity-name ', quoted_topic,
        ' --add-config errors.deadletterqueue.group.enable=true')
    ), NULL),
    IF(is_compacted, named_struct(
      'kind', 'COMPACTED_DLQ',
      'source_topic', CAST(NULL AS STRING),
      'severity', IF(copies = 'false', 'critical', 'high'),
      'since', greatest(dlq_topic_since, policy_since, IF(copies = 'false', copies_since, NULL)),
      'evidence', concat('The DLQ topic is compacted (cleanup.policy ', policy, '), ', IF(copies = 'false',
        'and dead letters have no key, as the group copies no records: each write is refused, and all are lost.',
        'so that it keeps only the last dead letter of a key, and those without a key are lost.')),
      'remedy', concat(set_topic, ' --entity-name ', quoted_topic, ' --add-config cleanup.policy=delete')
    ), NULL),
    IF(looped_since IS NOT NULL, named_struct(
      'kind', 'OWN_INPUT',
      'source_topic', dlq_topic,
      'severity', 'critical',
      'since', greatest(dlq_topic_since, looped_since),
      'evidence', 'The group reads the topic to which it dead-letters: a record that it rejects comes back for ever.',
      'remedy', concat(set_group, chr(39), 'errors.deadletterqueue.topic.name=',
        IF(own_name = dlq_topic, concat(own_name, '.2'), own_name), chr(39))
    ), NULL),
    IF(in_sync < wanted_in_sync, named_struct(
      'kind', 'TOO_FEW_IN_SYNC',
      'source_topic', CAST(NULL AS STRING),
      'severity', 'high',
      'since', greatest(dlq_topic_since, in_sync_since),
      'evidence', concat('A partition of the DLQ topic has ', in_sync, ' of ', replicas, ' replicas in sync, and ',
        'min.insync.replicas asks for ', wanted_in_sync, ': writes can be refused, and dead letters are kept by fewer ',
        'brokers than wanted.'),
      'remedy', IF(replicas < wanted_in_sync,
        concat(set_topic, ' --entity-name ', quoted_topic, ' --add-config min.insync.replicas=', replicas),
        concat(of_topics, ' --describe --topic ', quoted_topic, ' --under-min-isr-partitions'))
    ), NULL),
    IF(is_outrun = 'true' AND is_deleting, named_struct(
      'kind', 'NOT_LANDED_IN_TIME',
      'source_topic', CAST(NULL AS STRING),
      'severity', 'high',
      'since', greatest(dlq_topic_since, policy_since, kept_since, is_outrun_since),
      'evidence', concat('Dead letters wait to be landed for longer than the topic keeps them (retention.ms ', kept_ms,
        '): they are deleted before Afterlog has them. Run `afterlog run --feed dlq` more often.'),
      'remedy', concat(set_topic, ' --entity-name ', quoted_topic, ' --add-config retention.ms=-1')
    ), NULL),
    IF(larger IS NOT NULL AND copies = 'true', named_struct(
      'kind', 'SMALLER_MESSAGES',
      'source_topic', larger.topic,
      'severity', 'high',
      'since', greatest(dlq_topic_since, copies_since, most_bytes_since, larger.since),
      'evidence', concat('The DLQ topic takes ', most_bytes, ' bytes a message (max.message.bytes), and its source ',
        larger.topic, ' takes ', larger.most, ': larger records are dead-lettered without key and value.'),
      'remedy', concat(set_topic, ' --entity-name ', quoted_topic, ' --add-config max.message.bytes=', larger.most)
    ), NULL),
    IF(longer IS NOT NULL AND is_deleting, named_struct(
      'kind', 'SHORTER_RETENTION',
      'source_topic', longer.topic,
      'severity', 'medium',
      'since', greatest(dlq_topic_since, policy_since, kept_since, longer.since),
      'evidence', concat('The DLQ topic keeps records for ', kept_ms, ' ms (retention.ms), and its source ',
        longer.topic, ' ',
        IF(longer.most = 9223372036854775807, 'for ever', concat('for ', longer.most, ' ms')),
        ': a dead letter is deleted while its record is still there.'),
      'remedy', concat(set_topic, ' --entity-name ', quoted_topic, ' --add-config retention.ms=',
        IF(longer.most = 9223372036854775807, -1, longer.most))
    ), NULL),
    IF(copies = 'false', named_struct(
      'kind', 'COPY_OFF',
      'source_topic', CAST(NULL AS STRING),
      'severity', 'medium',
      'since', greatest(dlq_topic_since, copies_since),
      'evidence', concat('Dead letters have neither key nor value (errors.deadletterqueue.copy.record.enable): once ',
        'the source has deleted the records, there is nothing to replay.'),
      'remedy', concat(set_group, 'errors.deadletterqueue.copy.record.enable=true')
    ), NULL),
    IF(first_hop IS NOT NULL, named_struct(
      'kind', 'READS_A_DLQ',
      'source_topic', first_hop.topic,
      'severity', 'low',
      'since', greatest(dlq_topic_since, kept_since, first_hop.since),
      'evidence', concat('The group reads ', first_hop.topic, ', to which a group dead-letters: its own dead letters ',
        'name that topic, which does not keep records for longer than theirs, and then nothing tells their origin.'),
      'remedy', concat(set_topic, ' --entity-name ', chr(39), replace(first_hop.topic, chr(39), ''), chr(39),
        ' --add-config retention.ms=-1')
    ), NULL),
    IF(isolation = 'read_uncommitted', named_struct(
      'kind', 'READS_UNCOMMITTED',
      'source_topic', CAST(NULL AS STRING),
      'severity', 'low',
      'since', greatest(dlq_topic_since, isolation_since),
      'evidence', concat('The group reads uncommitted records (share.isolation.level): records of aborted ',
        'transactions can become dead letters.'),
      'remedy', concat(set_group, 'share.isolation.level=read_committed')
    ), NULL)
  )) AS finding
WHERE finding IS NOT NULL
