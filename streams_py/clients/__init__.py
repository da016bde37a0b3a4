"""Kafka clients for the product, made from a configuration."""
