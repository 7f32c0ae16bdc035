"""Contracts of the bronze tables: columns and grain, no rules about the content."""
