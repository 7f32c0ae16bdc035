"""Metrics in Prometheus' text format: a file after each run, a port while following."""
