"""The Airflow pool of one slot: one writer at a time on a local warehouse."""

POOL = "afterlog_writer"
