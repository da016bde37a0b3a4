"""The thread that keeps global tables up to date."""
