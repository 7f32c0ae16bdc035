"""Pushed topologies: the model, differences, drawings."""
