import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** The same two jobs as the Python side of the benchmark, on Kafka Streams for the JVM.
 *
 *  Peer map|count BOOTSTRAP APPLICATION_ID INPUT OUTPUT CACHE_BYTES COMMIT_MS STATE_DIR; runs until standard input ends. */
public final class Peer {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[1]);
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, args[2]);
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, args[5]);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, args[6]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, args[7]);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        StreamsBuilder builder = new StreamsBuilder();
        if (args[0].equals("map")) {
            builder.stream(args[3], Consumed.with(Serdes.String(), Serdes.ByteArray()))
                .mapValues(Peer::increment)
                .to(args[4], Produced.with(Serdes.String(), Serdes.ByteArray()));
        } else {
            builder.stream(args[3], Consumed.with(Serdes.String(), Serdes.ByteArray()))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()))
                .count(Materialized.as("counts"))
                .toStream()
                .to(args[4], Produced.with(Serdes.String(), Serdes.Long()));
        }
        CountDownLatch ended = new CountDownLatch(1);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), config)) {
            streams.start();
            Thread waiter = new Thread(() -> {
                try {
                    while (System.in.read() >= 0) { }
                } catch (IOException ignored) {
                    // the parent is gone: end as well
                }
                ended.countDown();
            });
            waiter.setDaemon(true);
            waiter.start();
            ended.await();
        }
    }

    /** Decode a JSON object, add one to its field "n", encode it again: with Jackson's tree, as most users do. */
    private static byte[] increment(byte[] value) {
        try {
            ObjectNode node = (ObjectNode) JSON.readTree(value);
            node.put("n", node.get("n").asLong() + 1);
            return JSON.writeValueAsBytes(node);
        } catch (IOException error) {
            throw new RuntimeException(new String(value, StandardCharsets.UTF_8), error);
        }
    }
}
