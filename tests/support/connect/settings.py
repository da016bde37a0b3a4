"""Settings of Connect workers."""

from __future__ import annotations

import base64

KEY = base64.b64encode(b"k" * 32).decode()

CONFIG = {"connector.class": "a:B", "name": "c"}


NEEDED = {
    "group.id": "g",
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "statuses",
    "key.converter": "json",
    "value.converter": "json",
}
