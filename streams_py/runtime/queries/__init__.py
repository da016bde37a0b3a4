"""Reading a client's stores from outside, and finding the instance that has them."""
