package org.apache.kafka.streams.processor.internals.assignment;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.stream.Collectors;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ApplicationState;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsAssignment;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsState;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskInfo;
import org.apache.kafka.streams.processor.assignment.TaskTopicPartition;
import org.apache.kafka.streams.processor.assignment.assignors.StickyTaskAssignor;
import org.apache.kafka.streams.processor.internals.TopologyMetadata.Subtopology;

/** Kafka Streams' task assignors on the same groups as the Python side of the benchmark.
 *
 *  AssignorPeer PROBLEM.json RUNS_MIN RUNS_MAX BUDGET_S LIMIT_S; one JSON line for each run: the processor time of the
 *  deciding thread in seconds, and the outcome. It runs until RUNS_MAX, or BUDGET_S of that time are spent and there were
 *  RUNS_MIN. A run of more than LIMIT_S seconds of processor time is given up: {"gave_up": seconds}. It lives in Kafka's
 *  package because some of what it calls is package-private. It ends when standard input does, so that it does not outlive its
 *  parent. */
public final class AssignorPeer {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private static volatile long runBegan = -1;

    private final JsonNode problem;
    private final String assignor;
    private final AssignmentConfigs configs;
    private final List<TaskId> tasks = new ArrayList<>();
    private final Map<TaskId, Integer> numbers = new HashMap<>();
    private final Map<ProcessId, Map<TaskId, Long>> lags = new LinkedHashMap<>();
    private final Map<ProcessId, Set<TaskId>> previousActive = new HashMap<>();
    private final Map<ProcessId, Set<TaskId>> previousStandby = new HashMap<>();
    private final Map<ProcessId, String> racks = new HashMap<>();

    public static void main(final String[] args) throws Exception {
        final int runsMin = Integer.parseInt(args[1]);
        final int runsMax = Integer.parseInt(args[2]);
        final double budget = Double.parseDouble(args[3]);
        watch(Thread.currentThread().getId(), Double.parseDouble(args[4]));
        endWithStandardInput();
        final AssignorPeer peer = new AssignorPeer(new ObjectMapper().readTree(new File(args[0])));
        final long began = THREADS.getCurrentThreadCpuTime();
        for (int run = 0; run < runsMax; run++) {
            if (run >= runsMin && THREADS.getCurrentThreadCpuTime() - began > budget * 1e9) {
                break;
            }
            peer.run();
        }
    }

    private static void endWithStandardInput() {
        final Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (final IOException ignored) {
                // the parent is gone: end as well
            }
            Runtime.getRuntime().halt(1);
        });
        reader.setDaemon(true);
        reader.start();
    }

    private static void watch(final long decider, final double limit) {
        final Thread watcher = new Thread(() -> {
            while (true) {
                try {
                    Thread.sleep(50);
                } catch (final InterruptedException ignored) {
                    return;
                }
                final long since = runBegan;
                final double spent = since < 0 ? 0 : (THREADS.getThreadCpuTime(decider) - since) / 1e9;
                if (spent > limit) {
                    System.out.println("{\"gave_up\": " + spent + "}");
                    System.out.flush();
                    Runtime.getRuntime().halt(0);
                }
            }
        });
        watcher.setDaemon(true);
        watcher.start();
    }

    private AssignorPeer(final JsonNode problem) {
        this.problem = problem;
        assignor = problem.get("assignor").asText();
        configs = new AssignmentConfigs(
            10_000L, 2, problem.get("replicas").asInt(), 600_000L, List.of(),
            OptionalInt.empty(), OptionalInt.empty(), assignor.equals("min_traffic") ? "min_traffic" : "none"
        );
        final List<Long> ends = new ArrayList<>();
        for (final JsonNode task : problem.get("tasks")) {
            tasks.add(TaskId.parse(task.get(0).asText()));
            ends.add(task.get(1).asLong());
            numbers.put(tasks.get(tasks.size() - 1), tasks.size() - 1);
        }
        for (final JsonNode client : problem.get("clients")) {
            final ProcessId id = new ProcessId(UUID.fromString(client.get("id").asText()));
            final Map<TaskId, Long> table = new TreeMap<>();  // as ClientState.computeTaskLags fills it
            if (!assignor.equals("min_traffic")) {
                for (int i = 0; i < tasks.size(); i++) {
                    table.put(tasks.get(i), ends.get(i));
                }
            }
            for (final JsonNode lag : client.get("lags")) {
                table.put(tasks.get(lag.get(0).asInt()), lag.get(1).asLong());
            }
            lags.put(id, table);
            previousActive.put(id, pick(client.get("active")));
            previousStandby.put(id, pick(client.get("standby")));
            racks.put(id, client.get("rack").asText());
        }
    }

    private Set<TaskId> pick(final JsonNode indexes) {
        final Set<TaskId> picked = new TreeSet<>();
        indexes.forEach(index -> picked.add(tasks.get(index.asInt())));
        return picked;
    }

    private void run() throws Exception {
        final String outcome;
        final long spent;
        if (assignor.equals("sticky")) {
            final ApplicationState state = applicationState();
            final StickyTaskAssignor sticky = new StickyTaskAssignor();
            runBegan = THREADS.getCurrentThreadCpuTime();
            final var answer = sticky.assign(state);
            spent = THREADS.getCurrentThreadCpuTime() - runBegan;
            runBegan = -1;
            outcome = outcome(answer.assignment());
        } else if (assignor.equals("min_traffic")) {
            final SortedMap<ProcessId, ClientState> clients = new TreeMap<>(clients());
            final List<ProcessId> order = new ArrayList<>(clients.keySet());
            for (int i = 0; i < tasks.size(); i++) {
                clients.get(order.get(i % order.size())).assignActive(tasks.get(i));
            }
            final RackAwareTaskAssignor optimiser = optimiser(order);
            runBegan = THREADS.getCurrentThreadCpuTime();
            optimiser.optimizeActiveTasks(
                new TreeSet<>(tasks), clients, problem.get("traffic_cost").asInt(), problem.get("non_overlap_cost").asInt()
            );
            spent = THREADS.getCurrentThreadCpuTime() - runBegan;
            runBegan = -1;
            outcome = cost(clients, order);
        } else {
            final Map<ProcessId, ClientState> clients = clients();
            final LegacyTaskAssignor chosen = assignor.equals("high_availability")
                ? new HighAvailabilityTaskAssignor() : new LegacyStickyTaskAssignor();
            final Set<TaskId> all = new LinkedHashSet<>(tasks);
            final Set<TaskId> stateful = new LinkedHashSet<>(tasks);
            final RackAwareTaskAssignor noRacks = optimiser(List.copyOf(clients.keySet()));
            runBegan = THREADS.getCurrentThreadCpuTime();
            chosen.assign(clients, all, stateful, noRacks, configs);
            spent = THREADS.getCurrentThreadCpuTime() - runBegan;
            runBegan = -1;
            outcome = outcome(clients);
        }
        System.out.println("{\"seconds\": " + spent / 1e9 + ", \"outcome\": \"" + outcome + "\"}");
        System.out.flush();
    }

    private Map<ProcessId, ClientState> clients() {
        final Map<ProcessId, ClientState> clients = new LinkedHashMap<>();
        lags.forEach((id, table) -> clients.put(
            id, new ClientState(previousActive.get(id), previousStandby.get(id), table, Map.of(), 1, id)
        ));
        return clients;
    }

    // -- the public assignor -----------------------------------------------------------------------------------------

    /** Tasks are hashed by id; Kafka's own class leaves that to the object's address, which makes standbys a matter of luck. */
    private record HashedTask(TaskId id, boolean isStateful, Set<String> stateStoreNames, Set<TaskTopicPartition> topicPartitions)
        implements TaskInfo {
        @Override
        public int hashCode() {
            return id.hashCode();
        }

        @Override
        public boolean equals(final Object other) {
            return other instanceof HashedTask && ((HashedTask) other).id.equals(id);
        }
    }

    private ApplicationState applicationState() {
        final Map<ProcessId, KafkaStreamsState> states = new LinkedHashMap<>();
        lags.forEach((id, table) -> states.put(id, new DefaultKafkaStreamsState(
            id, 1, Map.of(), new TreeSet<>(previousActive.get(id)), new TreeSet<>(previousStandby.get(id)),
            new TreeMap<>(), Optional.empty(), Optional.of(table), Optional.empty()
        )));
        final Map<TaskId, TaskInfo> infos = new LinkedHashMap<>();
        for (final TaskId task : tasks) {
            infos.put(task, new HashedTask(task, true, Set.of("store"), Set.of(
                new DefaultTaskTopicPartition(new TopicPartition("in-" + task.subtopology(), task.partition()), true, false, () -> { }),
                new DefaultTaskTopicPartition(new TopicPartition("changelog-" + task.subtopology(), task.partition()), false, true, () -> { })
            )));
        }
        return new ApplicationState() {
            @Override
            public Map<ProcessId, KafkaStreamsState> kafkaStreamsStates(final boolean computeTaskLags) {
                return states;
            }

            @Override
            public AssignmentConfigs assignmentConfigs() {
                return configs;
            }

            @Override
            public Map<TaskId, TaskInfo> allTasks() {
                return infos;
            }
        };
    }

    // -- racks -------------------------------------------------------------------------------------------------------

    private RackAwareTaskAssignor optimiser(final List<ProcessId> clients) {
        final Map<String, Node> nodes = new TreeMap<>();
        final List<PartitionInfo> partitions = new ArrayList<>();
        final Map<TaskId, Set<TopicPartition>> inputs = new HashMap<>();
        final Map<Subtopology, Set<TaskId>> groups = new TreeMap<>();
        final Map<TaskId, Set<TopicPartition>> changelogs = new HashMap<>();
        for (int i = 0; i < tasks.size() && problem.has("racks"); i++) {
            final TaskId task = tasks.get(i);
            final Set<TopicPartition> mine = new HashSet<>();
            for (final JsonNode partition : problem.get("racks").get(i)) {
                final TopicPartition name = new TopicPartition("in-" + task.subtopology() + "-" + mine.size(), task.partition());
                final List<Node> replicas = new ArrayList<>();
                partition.forEach(rack -> replicas.add(nodes.computeIfAbsent(
                    rack.asText(), key -> new Node(nodes.size(), "broker", 9092, key)
                )));
                final Node[] array = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(name.topic(), name.partition(), array[0], array, array));
                mine.add(name);
            }
            inputs.put(task, mine);
            changelogs.put(task, Set.of());
            groups.computeIfAbsent(new Subtopology(task.subtopology(), null), key -> new HashSet<>()).add(task);
        }
        final Map<ProcessId, Map<String, Optional<String>>> rackOf = new HashMap<>();
        clients.forEach(id -> rackOf.put(id, Map.of("consumer", Optional.of(racks.get(id)))));
        final Cluster cluster = new Cluster("cluster", nodes.values(), partitions, Set.of(), Set.of());
        final RackAwareTaskAssignor made =
            new RackAwareTaskAssignor(cluster, inputs, changelogs, groups, rackOf, null, configs, Time.SYSTEM);
        if (made.canEnableRackAwareAssignor() != assignor.equals("min_traffic")) {
            throw new IllegalStateException("rack information is not what it should be");
        }
        return made;
    }

    private String cost(final SortedMap<ProcessId, ClientState> clients, final List<ProcessId> order) {
        long cost = 0;
        for (final Map.Entry<ProcessId, ClientState> client : clients.entrySet()) {
            for (final TaskId task : client.getValue().activeTasks()) {
                final int number = numbers.get(task);
                for (final JsonNode partition : problem.get("racks").get(number)) {
                    boolean here = false;
                    for (final JsonNode rack : partition) {
                        here |= rack.asText().equals(racks.get(client.getKey()));
                    }
                    cost += here ? 0 : problem.get("traffic_cost").asInt();
                }
                final boolean moved = !order.get(number % order.size()).equals(client.getKey());
                cost += moved ? problem.get("non_overlap_cost").asInt() : 0;
            }
        }
        return Long.toString(cost);
    }

    // -- outcomes ----------------------------------------------------------------------------------------------------

    private static String outcome(final Map<ProcessId, ClientState> clients) throws Exception {
        final SortedMap<ProcessId, String> lines = new TreeMap<>();
        clients.forEach((id, client) -> lines.put(id, text(client.activeTasks()) + ";" + text(client.standbyTasks())));
        return digest(lines);
    }

    private static String outcome(final Iterable<KafkaStreamsAssignment> assignments) throws Exception {
        final SortedMap<ProcessId, String> lines = new TreeMap<>();
        for (final KafkaStreamsAssignment assignment : assignments) {
            final SortedSet<TaskId> active = new TreeSet<>();
            final SortedSet<TaskId> standby = new TreeSet<>();
            assignment.tasks().forEach((task, assigned) ->
                (assigned.type() == KafkaStreamsAssignment.AssignedTask.Type.ACTIVE ? active : standby).add(task));
            lines.put(assignment.processId(), text(active) + ";" + text(standby));
        }
        return digest(lines);
    }

    private static String text(final Set<TaskId> tasks) {
        return new TreeSet<>(tasks).stream().map(TaskId::toString).collect(Collectors.joining(" "));
    }

    private static String digest(final SortedMap<ProcessId, String> lines) throws Exception {
        final MessageDigest digest = MessageDigest.getInstance("SHA-256");
        for (final Map.Entry<ProcessId, String> line : lines.entrySet()) {
            digest.update((line.getKey() + ":" + line.getValue() + "\n").getBytes(StandardCharsets.UTF_8));
        }
        final StringBuilder hex = new StringBuilder();
        for (final byte b : digest.digest()) {
            hex.append(String.format("%02x", b));
        }
        return hex.toString();
    }
}
