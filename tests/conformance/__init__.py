"""Does this library do what Apache Kafka Streams did? Recorded vectors, and what replays them.

``python3 run.py conformance PATH...`` runs vector files or folders of them (:mod:`.command`); the unit tests use the
same checks case by case.
"""
