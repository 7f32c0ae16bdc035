"""Ask a cluster for its settings and topologies, with rights to describe only, and land what changed."""
