"""A cluster's settings -> gold.dlq_misconfigurations: the Airflow DAG `collect`, which asks the cluster first."""

from dags.factory import feed_dag

# Airflow looks for DAGs only in files that contain both words, "airflow" and "dag".
dag = feed_dag("collect", schedule="*/15 * * * *", asks=True)
