"""Readers of what lands: files, lines, logs and log segments."""
