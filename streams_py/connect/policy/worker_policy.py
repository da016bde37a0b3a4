"""All limits that a worker's settings place on configurations of connectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streams_py.connect.api import Connector, SinkConnector
from streams_py.connect.policy.classes import MissingClassError, Plugins
from streams_py.connect.policy.limits import OverridePolicy
from streams_py.connect.policy.providers import ConfigProviders
from streams_py.connect.policy.secrets import HIDDEN, hidden_keys, scrubbed, shown_config
from streams_py.errors import ConfigError

_CONVERTERS = ("key.converter", "value.converter")


@dataclass(frozen=True, slots=True)
class LoadedConnector:
    """A connector that has been created but not started. ``props`` has resolved placeholders."""

    connector: Connector
    given: Mapping[str, str]
    props: Mapping[str, str]

    def hide(self, text: str) -> str:
        """Return a text without the secrets of the configuration."""
        return scrubbed(text, self.given, self.props, self.connector.secret_keys)


@dataclass(frozen=True, slots=True)
class WorkerPolicy:
    """The limits of one worker. All workers of a group should have the same limits."""

    plugins: Plugins
    overrides: OverridePolicy
    providers: ConfigProviders

    def problems(self, config: Mapping[str, str]) -> list[str]:
        """Return sentences about what is wrong with a connector's configuration.

        A class that is not installed here is accepted, because another worker may have it. If none has it, the
        connector fails with that error.
        """
        found = [
            f"{key}: {HIDDEN} replaces a secret in output; write the secret itself, or a placeholder of a provider"
            for key in hidden_keys(config)
        ]
        found += self.overrides.problems(config)
        if found:
            return found
        try:
            loaded = self.load(config)
            wrong = [loaded.hide(text) for text in self._wrong_converters(loaded.props)]
        except MissingClassError:
            return found
        except ConfigError as error:
            return [str(error)]
        found += wrong
        if isinstance(loaded.connector, SinkConnector) and ("topics" in config) == ("topics.regex" in config):
            found.append("a sink connector requires either topics or topics.regex")
        try:
            said = loaded.connector.validate(loaded.props).items()
        except Exception as error:
            return [
                *found,
                loaded.hide(f"{type(loaded.connector).__name__} failed to validate the configuration: {error}"),
            ]
        return found + [loaded.hide(f"{key}: {sentence}") for key, sentences in said for sentence in sentences]

    def load(self, config: Mapping[str, str]) -> LoadedConnector:
        """Create the connector of a configuration.

        Raises:
            MissingClassError: The class is not installed here.
            ConfigError: The worker does not allow the configuration. The text contains no resolved value.
        """
        resolved = self.providers.resolve(config)
        try:
            return LoadedConnector(self.plugins.connector(resolved), config, resolved)
        except ConfigError as error:
            raise type(error)(scrubbed(str(error), config, resolved), key=error.key) from None

    def _wrong_converters(self, props: Mapping[str, str]) -> list[str]:
        found = []
        for key in _CONVERTERS:
            try:
                if key in props:
                    self.plugins.converter(key, props[key])
            except MissingClassError:
                continue
            except ConfigError as error:
                found.append(str(error))
        return found

    def shown(self, config: Mapping[str, str], connector: Mapping[str, str]) -> dict[str, str]:
        """Return a connector's or task's configuration without secrets.

        ``connector`` is the connector's configuration.
        """
        try:
            declared = self.plugins.connector_class(connector).secret_keys
        except ConfigError:
            declared = ()
        return shown_config(config, declared)

    def kind_of(self, connector: Mapping[str, str]) -> type[Connector] | None:
        """Return the class of a connector, or None if it cannot be imported or is not allowed."""
        try:
            return self.plugins.connector_class(connector)
        except ConfigError:
            return None
