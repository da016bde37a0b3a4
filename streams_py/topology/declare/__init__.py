"""What a topology is declared with: names, nodes, stores, windows and checks."""
