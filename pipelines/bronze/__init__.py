"""Landing to bronze: one module per table."""
