"""Afterlog's pipelines: landing to bronze, silver and gold Delta tables."""
