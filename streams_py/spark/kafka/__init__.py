"""The data source ``streams-kafka``: ranges of Kafka partitions as rows, and rows as records."""
