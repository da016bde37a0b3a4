"""Read access to stores for interactive queries."""
