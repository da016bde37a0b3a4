"""What becomes of the group members when an instance closes: ``leave.group.on.close``, and how ``auto`` decides.

An orchestrator does not tell a process why it gets SIGTERM. So ``auto`` decides by what replaces the process:

* A pod of a Deployment, a DaemonSet or a Job gets a successor with another name and without its disk. Its members
  leave. Otherwise the group would wait for them until their session timeout.
* A pod of a StatefulSet gets a successor with its name and disk. systemd and ``run(processes=N)`` start the program
  again in place. The members stay, so that the restart moves no tasks.
* The members of any other process stay, too, as in Kafka Streams. Its next start with the same ``state.dir`` removes
  them (:mod:`streams_py.runtime.group.own_members`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_KUBERNETES: Final = "KUBERNETES_SERVICE_HOST"
_SYSTEMD: Final = "INVOCATION_ID"
_ORDINAL: Final = re.compile(r".+-(0|[1-9][0-9]{0,3})")
"""Name of a StatefulSet's pod. Names of other pods end with five random letters and digits."""


class Leaving(NamedTuple):
    """Whether the members leave the group, and why, for the log."""

    leaves: bool
    why: str


def leaving_at_close(setting: str, environment: Mapping[str, str], host_name: str, *, is_supervised: bool) -> Leaving:
    """Return what becomes of the members of an instance that closes without an explicit ``leave_group``.

    Args:
        setting: ``leave.group.on.close``.
        environment: The environment variables of the process.
        host_name: The name of the host; in a container the name of its pod.
        is_supervised: Whether this is a process of ``run(processes=N)``.
    """
    if setting != "auto":
        return Leaving(setting == "always", f"leave.group.on.close = {setting}")
    if environment.get(_KUBERNETES):
        if _ORDINAL.fullmatch(host_name):
            return Leaving(False, f"the pod {host_name} has the name of a StatefulSet's pod")
        return Leaving(True, f"the pod {host_name} is not a StatefulSet's pod, so it does not come back")
    if is_supervised:
        return Leaving(False, "the supervisor of run() may start this process again")
    if environment.get(_SYSTEMD):
        return Leaving(False, "systemd may start this process again")
    return Leaving(False, "no sign that this process does not come back")
