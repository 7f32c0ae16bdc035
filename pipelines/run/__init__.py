"""Stages in order: once, again and again, until stopped."""
