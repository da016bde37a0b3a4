"""The physical topology: nodes in numbered sub-topologies, their internal topics, and how they look."""
