"""The findings of an upgrade check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Finding", "Level", "UpgradeReport"]


class Level(Enum):
    """The severity of a finding."""

    UNSAFE = "unsafe"
    """State is lost or misread, or the new version does not start."""
    STOP_FIRST = "stop first"
    """State is kept, but instances of both versions must not run in one group (no rolling bounce)."""
    WARNING = "warning"
    """A fact to know; the upgrade is safe."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    ``subject`` is the store or topic (short name). ``fix`` is the code to write, if one line is enough.
    """

    level: Level
    subject: str
    message: str
    fix: str | None = None

    def __str__(self) -> str:
        fix = "" if self.fix is None else f"\n    fix: {self.fix}"
        return f"{self.level.value}: {self.message}{fix}"


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """All findings, most severe first.

    ``unknown`` are facts that could not be compared, because one side does not have them.
    """

    findings: tuple[Finding, ...]
    """The findings, most severe first."""
    unknown: tuple[str, ...] = ()
    """Facts that could not be compared."""

    @property
    def safe(self) -> bool:
        """Whether the old version's state is kept and read correctly, and the new version starts."""
        return not self.of(Level.UNSAFE)

    @property
    def safe_while_rolling(self) -> bool:
        """Whether it is :attr:`safe` and instances of both versions may run in one group."""
        return self.safe and not self.of(Level.STOP_FIRST)

    def of(self, level: Level) -> tuple[Finding, ...]:
        """Return the findings of one level."""
        return tuple(finding for finding in self.findings if finding.level is level)

    def __str__(self) -> str:
        lines = [str(finding) for finding in self.findings]
        lines += [f"not compared: {what}" for what in self.unknown]
        if not self.safe:
            lines.append("NOT SAFE over the state of the old version")
        elif not self.safe_while_rolling:
            lines.append("SAFE over the state of the old version; stop all its instances before you start the new one")
        else:
            lines.append("SAFE")
        return "\n".join(lines)
