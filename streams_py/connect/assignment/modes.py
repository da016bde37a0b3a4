"""The four modes of the group, and which one a group speaks."""

from __future__ import annotations

from enum import Enum

from streams_py.errors import ConfigError

__all__ = ["Mode"]


class Mode(Enum):
    """``connect.protocol``. The value is the name on the wire; later modes understand all earlier ones."""

    EAGER = "default"
    COMPATIBLE = "compatible"
    SESSIONED = "sessioned"
    STATIC = "static"

    @property
    def version(self) -> int:
        """Of worker states and assignments: 0 to 3."""
        return list(Mode).index(self)

    @property
    def is_cooperative(self) -> bool:
        return self is not Mode.EAGER

    @property
    def signs_requests(self) -> bool:
        """Whether requests between workers carry a signature (KIP-507)."""
        return self.version >= Mode.SESSIONED.version

    @property
    def advertised(self) -> list[Mode]:
        """This mode and all that it understands, most capable first: the order of JoinGroup's protocols."""
        return list(Mode)[: self.version + 1][::-1]

    @classmethod
    def of_setting(cls, text: str) -> Mode:
        """From the value of ``connect.protocol``, upper or lower case. Raises ConfigError."""
        try:
            return cls[text.strip().upper()]
        except KeyError:
            names = ", ".join(mode.name.lower() for mode in cls)
            raise ConfigError(f"connect.protocol: {text!r} is no protocol; it is one of {names}") from None

    @classmethod
    def of_wire(cls, name: str) -> Mode:
        """From the protocol's name in a JoinGroup answer. Raises ValueError."""
        return cls(name.lower())
