"""Commands for authors of topologies and assignors: describe, compare and test them."""
