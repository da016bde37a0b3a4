"""Task assignors and the leader's assign step beside Kafka Streams' own on a warm JVM: equal input, equal decisions."""
