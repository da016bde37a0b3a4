"""Whether a new version of a topology can continue with the state of an old one.

This is the check of ``streams-py check-upgrade``.
"""

from streams_py.topology.upgrade.check import check_upgrade
from streams_py.topology.upgrade.report import Finding, Level, UpgradeReport
from streams_py.topology.upgrade.running import check_running

__all__ = ["Finding", "Level", "UpgradeReport", "check_running", "check_upgrade"]
