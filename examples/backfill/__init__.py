"""A live application that begins with what Spark has made of its history."""
