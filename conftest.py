"""How property tests run: repeatable by default, so that a red run can be looked at again.

``--hypothesis-profile=explore`` draws new examples on every run. No deadlines: a busy machine is no finding.
"""

from __future__ import annotations

import os

from hypothesis import settings

# In a pod, ``leave.group.on.close = auto`` lets members leave. Tests behave the same everywhere, also their processes.
os.environ.pop("KUBERNETES_SERVICE_HOST", None)

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("repeatable")
