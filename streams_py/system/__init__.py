"""The operating system and the interpreter: files, locks, signals, logs, memory. Nothing here talks to Kafka."""
