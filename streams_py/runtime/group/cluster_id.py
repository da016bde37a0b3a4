"""The id of the cluster, requested once per start of a client."""

from __future__ import annotations

import threading

from streams_py.ports import Admin


class ClusterId:
    """The id of the cluster that an admin client is connected to. Thread-safe."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._lock = threading.Lock()
        self._is_known = False
        self._id: str | None = None

    def get(self) -> str | None:
        """Return the id, None if the cluster has none. Requests it until a broker has answered.

        Raises:
            BrokerUnavailableError: No broker answers.
        """
        with self._lock:
            if not self._is_known:
                self._id, self._is_known = self._admin.cluster_id(), True
            return self._id
