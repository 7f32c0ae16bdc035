"""Contracts of the bronze tables: columns and grain, no opinion about the content."""
