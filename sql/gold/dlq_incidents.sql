-- Purpose: the episodes of each source topic, of which pipelines/gold/dlq_incidents.py makes incidents with verdicts.
-- Grain: cluster, incident_id.
-- Parameters: {dlq_episodes}, rows of silver.dlq_episodes, complete for each topic in them.
-- Refresh: original_topic
-- A verdict compares an episode with others of its topic: which partitions it has, and which attributes are common.
SELECT * FROM {dlq_episodes}
