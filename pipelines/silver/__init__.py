"""Bronze to silver: one module per table."""
