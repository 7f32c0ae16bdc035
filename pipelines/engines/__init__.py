"""The engines that compute tables: Spark and DuckDB, with the same few verbs, and the choice between them."""
