"""The public client ``KafkaStreams``, its state and its metrics."""
