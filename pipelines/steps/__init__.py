"""What a stage does: land, split, summarise."""
