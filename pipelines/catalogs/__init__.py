"""Catalogs of other tools, which find the tables by name: what they are told, and how each is told."""
