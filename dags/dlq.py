"""landing/dlq -> gold.dlq_summary: the Airflow DAG `dlq`, every five minutes."""

from dags.factory import feed_dag

# Airflow looks for DAGs only in files that contain both words, "airflow" and "dag".
dag = feed_dag("dlq", schedule="*/5 * * * *")
