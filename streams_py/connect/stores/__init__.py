"""The three compacted topics of a worker group, in Kafka Connect's formats."""
