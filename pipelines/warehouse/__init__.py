"""The tables and small state files of a warehouse."""
