"""Commands that list topics, and write and read records, on any cluster."""
