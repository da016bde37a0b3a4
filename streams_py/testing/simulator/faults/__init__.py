"""What can go wrong: every kind of fault, what it does, and members that mean harm."""
