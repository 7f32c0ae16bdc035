"""Replay: dead letters -> back to Kafka, chosen, planned, explained, once."""
