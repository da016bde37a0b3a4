"""Small programs that measure themselves in a new process and print one number.

python -m benchmarks.probes start              seconds from the first import to RUNNING, embedded cluster
python -m benchmarks.probes memory TASKS DIR   resident memory in MB, idle, after all tasks run
python -m benchmarks.probes import MODULE      seconds that the import takes
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import uuid

_WAIT_S = 120.0
_IDLE_S = 3.0


def _start() -> float:
    began = time.perf_counter()
    from streams_py import KafkaStreams, State, StreamsBuilder, serdes
    from streams_py.clients.factory import KafkaClients
    from streams_py.config.streams_config import StreamsConfig
    from streams_py.ports import TopicSpec

    config = StreamsConfig.of({"application.id": "start", "bootstrap.servers": f"embedded://start-{_unique()}"})
    clients = KafkaClients(config)
    clients.admin().create_topics([TopicSpec("in", 4)])
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.BYTES, value=serdes.BYTES).foreach(lambda key, value: None)
    with KafkaStreams(builder.build(), config, clients=clients) as streams:
        if not streams.wait_until(State.RUNNING, _WAIT_S):
            raise SystemExit(f"not RUNNING but {streams.state}: {streams.error}")
        return time.perf_counter() - began


def _memory(tasks: int, folder: str) -> float:
    from streams_py import KafkaStreams, State, StreamsBuilder, serdes
    from streams_py.clients.factory import KafkaClients
    from streams_py.config.streams_config import StreamsConfig
    from streams_py.ports import TopicSpec

    config = StreamsConfig.of(
        {"application.id": "idle", "bootstrap.servers": f"embedded://idle-{_unique()}", "state.dir": folder}
    )
    clients = KafkaClients(config)
    clients.admin().create_topics([TopicSpec("in", tasks)])
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.STRING, value=serdes.BYTES).group_by_key().count(store="counts")
    with KafkaStreams(builder.build(), config, clients=clients) as streams:
        if not streams.wait_until(State.RUNNING, _WAIT_S):
            raise SystemExit(f"not RUNNING but {streams.state}: {streams.error}")
        running = sum(len(thread.active_tasks) for thread in streams.metadata_for_local_threads())
        if running != tasks:
            raise SystemExit(f"{running} tasks run, not {tasks}")
        time.sleep(_IDLE_S)
        return _resident_mb()


def _resident_mb() -> float:
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS; the peak, not the current value


def _import(module: str) -> float:
    began = time.perf_counter()
    importlib.import_module(module)
    return time.perf_counter() - began


def _unique() -> str:
    return uuid.uuid4().hex[:8]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["start"]:
            print(_start())
        case ["memory", tasks, folder]:
            print(_memory(int(tasks), folder))
        case ["import", module]:
            print(_import(module))
        case _:
            raise SystemExit(__doc__)
