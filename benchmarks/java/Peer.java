import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/** The same jobs as the Python side of the benchmark, on Kafka Streams for the JVM.
 *
 *  Peer map|count|member|takeover|takeover-exactly-once|window|table-join|stream-join BOOTSTRAP APPLICATION_ID
 *  INPUT[,INPUT] OUTPUT CACHE_BYTES COMMIT_MS STATE_DIR; runs until standard input ends. A member counts, keeps copies,
 *  and leaves its group then. "takeover" counts and keeps copies with default settings. */
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
        if (args[0].equals("member")) {
            config.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
            config.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, 6_000);
            config.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 1_200);
        }
        if (args[0].startsWith("takeover")) {
            config.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
        }
        if (args[0].endsWith("exactly-once")) {
            config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        }
        StreamsBuilder builder = new StreamsBuilder();
        if (args[0].equals("map")) {
            builder.stream(args[3], Consumed.with(Serdes.String(), Serdes.ByteArray()))
                .mapValues(Peer::increment)
                .to(args[4], Produced.with(Serdes.String(), Serdes.ByteArray()));
        } else if (args[0].equals("window")) {
            builder.stream(args[3], Consumed.with(Serdes.String(), Serdes.ByteArray()))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()))
                .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(10)))
                .count(Materialized.as("counts"))
                .toStream()
                .to(args[4], Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 10_000L), Serdes.Long()));
        } else if (args[0].equals("table-join")) {
            String[] inputs = args[3].split(",");
            KTable<String, byte[]> table = builder.table(
                inputs[1], Consumed.with(Serdes.String(), Serdes.ByteArray()), Materialized.as("rows"));
            builder.stream(inputs[0], Consumed.with(Serdes.String(), Serdes.ByteArray()))
                .join(table, (value, row) -> row, Joined.with(Serdes.String(), Serdes.ByteArray(), Serdes.ByteArray()))
                .to(args[4], Produced.with(Serdes.String(), Serdes.ByteArray()));
        } else if (args[0].equals("stream-join")) {
            String[] inputs = args[3].split(",");
            KStream<String, byte[]> right = builder.stream(inputs[1], Consumed.with(Serdes.String(), Serdes.ByteArray()));
            builder.stream(inputs[0], Consumed.with(Serdes.String(), Serdes.ByteArray()))
                .join(
                    right,
                    (leftValue, rightValue) -> rightValue,
                    JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMillis(100)),
                    StreamJoined.with(Serdes.String(), Serdes.ByteArray(), Serdes.ByteArray()))
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
            if (args[0].equals("member")) {
                streams.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
                    .withTimeout(Duration.ofSeconds(30)));
            }
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
