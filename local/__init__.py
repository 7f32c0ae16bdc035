"""Tools for one machine: set-up, the demo, a broker for tests and the project's own Airflow."""
