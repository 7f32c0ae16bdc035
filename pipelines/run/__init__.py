"""Run stages in order: once, or in cycles until stopped."""
