"""Benchmarks: each pair in one run, shown as ratios."""
