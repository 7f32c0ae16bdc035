"""DuckDB as an engine: its sessions, Spark SQL in its language, and the functions of Spark that it lacks."""
