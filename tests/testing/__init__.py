"""Builders of landed files, logs and requests, for tests and benchmarks; the product imports none of it."""
