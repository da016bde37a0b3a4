"""Key-value stores on bytes and on values, with their codecs and iterators."""
