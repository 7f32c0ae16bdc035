"""The steps of stages: land, split, collapse, summarise."""
