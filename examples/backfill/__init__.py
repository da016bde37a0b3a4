"""A live application that starts with state that Spark has computed from its history."""
