"""The embedded cluster: librdkafka's mock cluster in a separate process."""
