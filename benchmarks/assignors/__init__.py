"""Task assignors and the leader's assign step, compared with Kafka Streams on a warm JVM: equal input and decisions."""
