"""Commands that look at a group, explain it, or set it back."""
