"""Tasks without stream threads, brokers and clocks: what the test driver and Spark's workers run."""
