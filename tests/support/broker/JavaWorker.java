import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * The word count of worker.py on Kafka Streams for the JVM: same topology, same orders, same reports. Runs with every
 * release from 2.5 on: what has another name in some of them is looked up by its name.
 */
public final class JavaWorker {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static volatile String error;

    public static void main(final String[] args) throws Exception {
        final BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        final JsonNode order = JSON.readTree(in.readLine());
        final Properties config = new Properties();
        order.get("config").fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream(order.get("input").asText(), Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(order.get("output").asText(), Produced.with(Serdes.String(), Serdes.Long()));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), config)) {
            noteErrors(streams);
            streams.start();
            final Thread reporter = new Thread(() -> report(streams));
            reporter.setDaemon(true);
            reporter.start();
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                answer(streams, JSON.readTree(line));
            }
        }
    }

    private static void report(final KafkaStreams streams) {
        Map<String, Object> last = null;
        while (true) {
            final Collection<?> threads = threads(streams);
            final Map<String, Object> now = new LinkedHashMap<>();
            now.put("state", streams.state().toString());
            now.put("running", tasks(threads, "activeTasks"));
            now.put("standby", tasks(threads, "standbyTasks"));
            now.put("error", error);
            if (!now.equals(last)) {
                say(now);
                last = now;
            }
            try {
                Thread.sleep(50);
            } catch (final InterruptedException ended) {
                return;
            }
        }
    }

    private static Collection<?> threads(final KafkaStreams streams) {
        try {
            return (Collection<?>) call(KafkaStreams.class, streams, "metadataForLocalThreads");
        } catch (final NoSuchMethodException before3) {
            try {
                return (Collection<?>) call(KafkaStreams.class, streams, "localThreadsMetadata");
            } catch (final NoSuchMethodException impossible) {
                throw new IllegalStateException(impossible);
            }
        }
    }

    private static TreeSet<String> tasks(final Collection<?> threads, final String kind) {
        final TreeSet<String> ids = new TreeSet<>();
        try {
            for (final Object thread : threads) {
                for (final Object task : (Collection<?>) call(known("ThreadMetadata"), thread, kind)) {
                    ids.add(call(known("TaskMetadata"), task, "taskId").toString());
                }
            }
        } catch (final NoSuchMethodException impossible) {
            throw new IllegalStateException(impossible);
        }
        return ids;
    }

    private static Class<?> known(final String name) {
        try {
            return Class.forName("org.apache.kafka.streams." + name);
        } catch (final ClassNotFoundException before3) {
            try {
                return Class.forName("org.apache.kafka.streams.processor." + name);
            } catch (final ClassNotFoundException impossible) {
                throw new IllegalStateException(impossible);
            }
        }
    }

    private static Object call(final Class<?> type, final Object of, final String name) throws NoSuchMethodException {
        final Method method = type.getMethod(name);
        try {
            return method.invoke(of);
        } catch (final ReflectiveOperationException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** Before 2.8 there is no such handler; the client ends in ERROR all the same. */
    private static void noteErrors(final KafkaStreams streams) throws ReflectiveOperationException {
        for (final Method method : KafkaStreams.class.getMethods()) {
            final Class<?>[] wanted = method.getParameterTypes();
            if (wanted.length == 1 && wanted[0].getSimpleName().equals("StreamsUncaughtExceptionHandler")) {
                method.invoke(streams, Proxy.newProxyInstance(
                    wanted[0].getClassLoader(), wanted, (proxy, handle, arguments) -> {
                        error = arguments[0].toString();
                        return Arrays.stream(handle.getReturnType().getEnumConstants())
                            .filter(answer -> answer.toString().equals("SHUTDOWN_CLIENT")).findFirst().orElseThrow();
                    }));
            }
        }
    }

    private static void answer(final KafkaStreams streams, final JsonNode command) {
        final Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("to", command.get("number").asInt());
        try {
            if (!command.get("do").asText().equals("store")) {
                throw new IllegalArgumentException("the Java worker only knows the command store");
            }
            StoreQueryParameters<ReadOnlyKeyValueStore<String, Long>> query =
                StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.keyValueStore());
            if (command.path("stale").asBoolean()) {
                query = query.enableStaleStores();
            }
            final Map<String, Long> found = new TreeMap<>();
            streams.store(query).all().forEachRemaining(entry -> found.put(entry.key, entry.value));
            answer.put("answer", found);
        } catch (final RuntimeException problem) {
            answer.put("answer", null);
            answer.put("problem", problem.toString());
        }
        say(answer);
    }

    private static synchronized void say(final Map<String, Object> message) {
        try {
            System.out.println(JSON.writeValueAsString(message));
        } catch (final com.fasterxml.jackson.core.JsonProcessingException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
