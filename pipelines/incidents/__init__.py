"""Incidents: dead letters of one error in episodes, their verdicts, and what they touch; plain Python, no Spark."""
