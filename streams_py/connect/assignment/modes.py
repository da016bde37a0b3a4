"""The four protocol modes of a group."""

from __future__ import annotations

from enum import Enum

from streams_py.errors import ConfigError


class Mode(Enum):
    """The values of ``connect.protocol``.

    A value is the name in JoinGroup. Later modes include all earlier ones.
    """

    EAGER = "default"
    COMPATIBLE = "compatible"
    SESSIONED = "sessioned"
    STATIC = "static"

    @property
    def version(self) -> int:
        """Version of worker states and assignments, 0 to 3."""
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
        """This mode and all earlier ones, newest first: the order of protocols in JoinGroup."""
        return list(Mode)[: self.version + 1][::-1]

    @classmethod
    def of_setting(cls, text: str) -> Mode:
        """Parse the value of ``connect.protocol``, in upper or lower case. Raises ConfigError."""
        try:
            return cls[text.strip().upper()]
        except KeyError:
            names = ", ".join(mode.name.lower() for mode in cls)
            raise ConfigError(f"connect.protocol: {text!r} is not a protocol; use one of {names}") from None

    @classmethod
    def of_wire(cls, name: str) -> Mode:
        """Parse the protocol's name in a JoinGroup response. Raises ValueError."""
        return cls(name.lower())
