"""Records that cannot be read, processed or written."""
