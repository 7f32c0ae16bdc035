"""Airflow DAGs: one file per feed, with tasks and edges derived from the catalog."""
