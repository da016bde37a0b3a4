"""The physical topology: nodes in numbered sub-topologies, internal topics, and pictures."""
