"""columns of tables -> expressions that several transforms share."""
