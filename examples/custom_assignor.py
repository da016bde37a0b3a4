"""A custom task assignor (KIP-924) that runs heavy tasks only on large clients.

    python -m examples.custom_assignor small large large     # three instances in this process, on the embedded cluster
    python -m examples.custom_assignor small                 # or one here, and in another terminal:
    python -m examples.custom_assignor large

Set BOOTSTRAP=host:port to use a broker. Stop it with Ctrl-C.

What to look at: ``HeavyOnLarge`` is the whole assignor. The application is the word count. Its sub-topology 1, which
counts, is configured as heavy (``app.heavy``). So tasks 1_0 to 1_3 run on instances tagged ``size=large`` as soon as
one has joined. Tasks 0_0 to 0_3 run on the instance with the least work. ``default_standby_task_assignment`` places the
standby tasks. When an instance joins or leaves, only tasks that have to move do so.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from examples.word_count.app import word_count
from streams_py import KafkaStreams, TopicSpec, create_topics
from streams_py.assignment import (
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    ProcessId,
    TaskAssignment,
    TaskAssignor,
    TaskType,
    default_standby_task_assignment,
)


class HeavyOnLarge(TaskAssignor):
    """Places tasks of the sub-topologies in ``app.heavy`` on clients tagged ``size=large``, if one exists."""

    def configure(self, configs: Mapping[str, object]) -> None:
        self.heavy = {int(number) for number in str(configs.get("app.heavy", "")).split(",") if number.strip()}

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        clients = application_state.kafka_streams_states()
        everybody = sorted(clients)
        large = [client for client in everybody if clients[client].client_tags.get("size") == "large"]
        before = {task: client for client in everybody for task in clients[client].previous_active_tasks}
        assignments = {client: KafkaStreamsAssignment(client) for client in everybody}

        def load(client: ProcessId) -> float:
            return len(assignments[client].tasks) / clients[client].num_processing_threads

        for task in sorted(application_state.all_tasks(), key=lambda task: (task.subtopology not in self.heavy, task)):
            allowed = large if large and task.subtopology in self.heavy else everybody
            chosen = min(allowed, key=load)
            owner = before.get(task)
            if owner in allowed and load(owner) - load(chosen) < 1 / clients[owner].num_processing_threads:
                chosen = owner  # its load is less than one task per thread above the best: do not move the task
            assignments[chosen].assign_task(AssignedTask(task, TaskType.ACTIVE))
        if application_state.assignment_configs().num_standby_replicas:  # with tags it adds standbys even for 0
            default_standby_task_assignment(application_state, assignments)
        return TaskAssignment(list(assignments.values()))


# -- application ------------------------------------------------------------------------------------------------------

SETTINGS = {
    "application.id": "custom-assignor",
    "bootstrap.servers": os.environ.get("BOOTSTRAP", "embedded"),
    "task.assignor.class": "examples.custom_assignor:HeavyOnLarge",
    "app.heavy": "1",
    "num.standby.replicas": 1,
}


def shown(streams: KafkaStreams) -> str:
    """Return state and tasks of an instance as text, with standby tasks in brackets."""
    threads = streams.metadata_for_local_threads()
    active = sorted(str(task) for thread in threads for task in thread.active_tasks)
    standby = sorted(f"({task})" for thread in threads for task in thread.standby_tasks)
    return f"{streams.state.value:12} {' '.join(active + standby)}"


def main(sizes: Sequence[str]) -> None:
    """Run one instance of each size, and print the tasks of all of them whenever they change."""
    create_topics(SETTINGS, TopicSpec("text-lines", 4), TopicSpec("word-counts", 4))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        instances = {}
        for number, size in enumerate(sizes, 1):
            own = {"client.tag.size": size, "state.dir": str(Path(folder) / str(number))}
            instances[f"{number} {size}"] = running.enter_context(KafkaStreams(word_count(), {**SETTINGS, **own}))
        last: dict[str, str] = {}
        while not any(streams.state.is_final for streams in instances.values()):
            now = {name: shown(streams) for name, streams in instances.items()}
            if now != last:
                print("\n".join(f"{name:10} {text}" for name, text in now.items()), end="\n\n", flush=True)
                last = now
            time.sleep(0.2)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:] or ["small", "large"])
