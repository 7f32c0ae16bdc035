"""landing/acknowledgements, segments, broker-logs -> gold.message_ledger and others: the Airflow DAG `delivery`."""

from dags.factory import feed_dag

# Airflow looks for DAGs only in files that contain both words, "airflow" and "dag".
dag = feed_dag("delivery", schedule="*/5 * * * *")
