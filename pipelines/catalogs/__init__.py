"""Catalogs of other tools, which find the tables by name: the entries that they get, and a module for each."""
