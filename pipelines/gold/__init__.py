"""Modules of gold tables whose rows are made in Python; the SELECTs of all gold tables are in ``sql/gold``."""
