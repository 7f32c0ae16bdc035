"""Contracts as data, and the two enforcers that share them: the row split and the Great Expectations gate."""
