"""A Kafka cluster: what it holds, and its records."""
