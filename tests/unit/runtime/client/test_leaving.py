"""Which signs decide whether the members of an instance that closes leave their group."""

from __future__ import annotations

import pytest

from streams_py.runtime.client.leaving import leaving_at_close

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
SERVICE = {"INVOCATION_ID": "4f6a"}


@pytest.mark.parametrize(
    ("environment", "host", "is_supervised", "leaves"),
    [
        (POD, "orders-6d4cf56db6-x2x9k", False, True),
        (POD, "orders-6d4cf56db6-x2x9k", True, True),  # the pod ends with its supervisor
        (POD | SERVICE, "orders-6d4cf56db6-x2x9k", False, True),
        (POD, "orders-6d4cf56db6-25479", False, True),  # digits only, by chance
        (POD, "orders-01", False, True),
        (POD, "orders", False, True),
        (POD, "-7", False, True),
        (POD, "orders-0", False, False),
        (POD, "orders-12", False, False),
        (POD, "orders-1234", True, False),
        ({"KUBERNETES_SERVICE_HOST": ""}, "orders-6d4cf56db6-x2x9k", False, False),
        ({}, "orders-6d4cf56db6-x2x9k", False, False),
        ({}, "host", True, False),
        (SERVICE, "host", False, False),
    ],
)
def test_auto_decides_by_what_replaces_the_process(
    environment: dict[str, str], host: str, is_supervised: bool, leaves: bool
) -> None:
    found = leaving_at_close("auto", environment, host, is_supervised=is_supervised)
    assert found.leaves is leaves
    assert found.why


@pytest.mark.parametrize(("setting", "leaves"), [("always", True), ("never", False)])
@pytest.mark.parametrize("host", ["orders-0", "orders-6d4cf56db6-x2x9k"])
def test_setting_has_precedence_over_all_signs(setting: str, leaves: bool, host: str) -> None:
    found = leaving_at_close(setting, POD | SERVICE, host, is_supervised=True)
    assert found == (leaves, f"leave.group.on.close = {setting}")
