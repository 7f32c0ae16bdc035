"""Contracts of the gold tables."""
