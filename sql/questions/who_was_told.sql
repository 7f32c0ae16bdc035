-- Purpose: who was told what, and when? Alerts that were sent, suppressed or given up, and those that wait, the latest
--   first.
-- Usage: afterlog ask who_was_told
-- Parameters: none.
-- Feeds: none.
-- Engine: duckdb
SELECT cluster, at, status, route, severity, kind, title, answer, alert_id
FROM quality.alerts
ORDER BY at DESC, cluster, alert_id, status
