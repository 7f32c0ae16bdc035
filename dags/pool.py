"""The Airflow pool of one slot that keeps the writers of a local warehouse apart."""

POOL = "afterlog_writer"
