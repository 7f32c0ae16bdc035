"""Airflow DAGs: one file a feed; tasks and edges are derived from the catalog."""
