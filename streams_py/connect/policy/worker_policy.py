"""All that a worker's settings say about what configurations of connectors may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streams_py.connect.api import Connector, SinkConnector
from streams_py.connect.policy.classes import MissingClassError, Plugins
from streams_py.connect.policy.overrides import OverridePolicy
from streams_py.connect.policy.providers import ConfigProviders
from streams_py.connect.policy.secrets import HIDDEN, hidden_keys, shown_config
from streams_py.errors import ConfigError

__all__ = ["WorkerPolicy"]

_CONVERTERS = ("key.converter", "value.converter")


@dataclass(frozen=True, slots=True)
class WorkerPolicy:
    """Of one worker. All workers of a group should have the same one."""

    plugins: Plugins
    overrides: OverridePolicy
    providers: ConfigProviders

    def problems(self, config: Mapping[str, str]) -> list[str]:
        """What is wrong with a connector's configuration, as sentences. A class that is not installed here is not a
        problem: another worker may have it, and otherwise the connector fails and says why."""
        found = [
            f"{key}: {HIDDEN} stands for a secret that is not shown; write the secret, or a placeholder of a provider"
            for key in hidden_keys(config)
        ]
        found += self.overrides.problems(config)
        if found:
            return found
        try:
            resolved = self.providers.resolve(config)
            for key in _CONVERTERS:
                if key in resolved:
                    self.plugins.converter(key, resolved[key])
            connector = self.plugins.connector(resolved)
        except MissingClassError:
            return found
        except ConfigError as error:
            return [str(error)]
        if isinstance(connector, SinkConnector) and ("topics" in config) == ("topics.regex" in config):
            found.append("a sink has either topics or topics.regex")
        said = connector.validate(resolved).items()
        return found + [f"{key}: {sentence}" for key, sentences in said for sentence in sentences]

    def shown(self, config: Mapping[str, str], connector: Mapping[str, str]) -> dict[str, str]:
        """A connector's or a task's configuration without its secrets. ``connector``: the connector's own one."""
        try:
            declared = self.plugins.connector_class(connector).secret_keys
        except ConfigError:
            declared = ()
        return shown_config(config, declared)

    def kind_of(self, connector: Mapping[str, str]) -> type[Connector] | None:
        """The class of a connector; None where it cannot be imported or is not allowed."""
        try:
            return self.plugins.connector_class(connector)
        except ConfigError:
            return None
