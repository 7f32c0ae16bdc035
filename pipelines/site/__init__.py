"""The static site that ``afterlog report`` writes: what a team opens first."""
