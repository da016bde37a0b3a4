"""What a check of an upgrade finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Finding", "Level", "UpgradeReport"]


class Level(Enum):
    """How bad it is."""

    UNSAFE = "unsafe"
    """State is lost or misread, or the new version does not start."""
    STOP_FIRST = "stop first"
    """State is kept, but instances of both versions must not run in one group: not for a rolling bounce."""
    WARNING = "warning"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``subject``: the store or topic (short name); ``fix``: what to write, if one line is enough."""

    level: Level
    subject: str
    message: str
    fix: str | None = None

    def __str__(self) -> str:
        fix = "" if self.fix is None else f"\n    fix: {self.fix}"
        return f"{self.level.value}: {self.message}{fix}"


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """All findings, the worst first. ``unknown``: what could not be compared, because one side does not tell."""

    findings: tuple[Finding, ...]
    unknown: tuple[str, ...] = ()

    @property
    def safe(self) -> bool:
        """True when the state of the old version is kept, read as it was written, and the new version starts."""
        return not self.of(Level.UNSAFE)

    @property
    def safe_while_rolling(self) -> bool:
        """True when it is :attr:`safe`, and instances of both versions may run in one group."""
        return self.safe and not self.of(Level.STOP_FIRST)

    def of(self, level: Level) -> tuple[Finding, ...]:
        """The findings of one level."""
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
