"""Contracts of the silver tables."""
