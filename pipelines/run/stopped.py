"""A run that was asked to stop -> Stopped."""

from __future__ import annotations


class Stopped(Exception):
    """A run was asked to stop and did; the next run continues from there."""
