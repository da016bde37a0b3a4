"""What happens to a record that cannot be read, processed or written."""
