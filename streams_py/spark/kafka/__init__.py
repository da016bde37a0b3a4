"""The data source ``streams-kafka``. It reads ranges of Kafka partitions as rows, and writes rows as records."""
