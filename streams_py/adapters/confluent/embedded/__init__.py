"""The embedded cluster: librdkafka's mock broker in a process of its own."""
