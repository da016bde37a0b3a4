"""Word count as a Kafka Streams application. Run it in several processes: they share the work.

    python -m examples.word_count.app                            # on the embedded cluster
    BOOTSTRAP=localhost:9092 python -m examples.word_count.app   # on a broker

What to look at: this is all there is. Lines come in from `text-lines`, counts go out to `word-counts`; the topics in
between, the state and its changelog, and who does what are the library's business.
"""

import os
import re

from streams_py import KafkaStreams, StreamsBuilder, Topology, serdes


def word_count(lines: str = "text-lines", counts: str = "word-counts") -> Topology:
    """Counts the words of the topic ``lines`` into the topic ``counts``."""
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    words = builder.stream(lines).flat_map_values(lambda line: re.findall(r"\w+", line.lower()))
    words.group_by(lambda _, word: word).count(store="counts").to_stream().to(counts)
    return builder.build()


if __name__ == "__main__":
    config = {"application.id": "word-count", "bootstrap.servers": os.environ.get("BOOTSTRAP", "embedded")}
    KafkaStreams(word_count(), config).run()
