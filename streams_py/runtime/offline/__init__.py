"""Tasks without stream threads, brokers and clocks: used by the test driver and by Spark's workers."""
