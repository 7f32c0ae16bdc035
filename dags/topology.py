"""landing/streams-requests -> gold.topology_current and others: the Airflow DAG `topology`, every five minutes."""

from dags.factory import feed_dag

# Airflow looks for DAGs only in files that contain both words, "airflow" and "dag".
dag = feed_dag("topology", schedule="*/5 * * * *")
