"""The three compacted topics of a group of workers, in Kafka Connect's formats: configs, offsets and statuses."""
