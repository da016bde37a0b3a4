"""One set of security settings for two Kafka client libraries.

An application has one configuration, but two client libraries connect to its cluster: kafka-python for the group, and
librdkafka for the records. Their settings have different names, and neither uses Java's names. A security key that has
an effect on one library only, or on none, is worse than an error: the application would run, but less securely than its
author expects. So this module has one table of all security keys that Apache Kafka documents. Each key is either
supported for *both* libraries, or refused with a :class:`ConfigError` that names the key and an alternative. A key with
a security prefix that is not in the table is refused too.

:func:`parse_security` reads dotted keys into :class:`SecuritySettings`.
:mod:`streams_py.adapters.security.client_settings` translates them for each library. This module imports no client
library. Secrets never appear in ``repr``, logs or error messages.

Trust and key material is PEM, in files or inline (KIP-651). Python's TLS cannot read Java's JKS and PKCS#12 stores; the
error explains how to convert them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import Final

from streams_py.errors import ConfigError
from streams_py.system.printable import named

TokenSource = Callable[[], tuple[str, float]]
"""A function that returns an OAUTHBEARER token and its expiry in seconds since the epoch. Client threads call it."""

SECURITY_PREFIXES: Final = ("ssl.", "sasl.", "security.", "enable.ssl.", "enable.sasl.")


class SecurityProtocol(StrEnum):
    """Values of ``security.protocol``."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def sasl(self) -> bool:
        """Whether the client authenticates with SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Mechanism(StrEnum):
    """Values of ``sasl.mechanism`` that both client libraries support."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """Security settings of one application, independent of client libraries. ``repr`` does not show secrets."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    ca_file: str | None = None
    ca_pem: str | None = field(default=None, repr=False)
    certificate_file: str | None = None
    certificate_pem: str | None = field(default=None, repr=False)
    key_file: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    crl_file: str | None = None
    ciphers: str | None = None
    verify_hostname: bool = True
    verify_certificate: bool = True
    mechanism: Mechanism | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token_source: TokenSource | None = field(default=None, repr=False)


# -- the table of keys -------------------------------------------------------------------------------------------------

_PEM_HINT: Final = (
    "Python reads PEM files: convert the store once (openssl pkcs12 -in store.p12 -out store.pem -nodes; a JKS store "
    "first with keytool -importkeystore -deststoretype pkcs12)"
)
_JAVA_ONLY: Final = "it configures the JVM's TLS or login code, which is not used here; remove it"
_ONE_CLIENT_ONLY: Final = "only one of the two client libraries supports it; remove it, or restrict it on the broker"
_NO_KERBEROS: Final = (
    "Kerberos is not built into the client library; use sasl.mechanism=SCRAM-SHA-512, PLAIN or OAUTHBEARER"
)
_TOKEN_HINT: Final = (
    "give a function that returns (token, expiry in seconds since the epoch), or its name package.module:function, as "
    "sasl.oauthbearer.token.source"
)

_UNDERSTOOD: Final = frozenset(
    {
        "security.protocol",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.crl.location",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.protocol",
        "ssl.enabled.protocols",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.token.source",
    }
)

_REFUSED: Final[Mapping[str, str]] = {
    "ssl.truststore.password": "a PEM trust store has no password; set ssl.ca.location to a PEM file. " + _PEM_HINT,
    "ssl.keystore.password": "a PEM key is protected by ssl.key.password. " + _PEM_HINT,
    "ssl.provider": _JAVA_ONLY,
    "ssl.keymanager.algorithm": _JAVA_ONLY,
    "ssl.trustmanager.algorithm": _JAVA_ONLY,
    "ssl.secure.random.implementation": _JAVA_ONLY,
    "ssl.engine.factory.class": _JAVA_ONLY,
    "security.providers": _JAVA_ONLY,
    "ssl.curves.list": _ONE_CLIENT_ONLY,
    "ssl.sigalgs.list": _ONE_CLIENT_ONLY,
    "ssl.providers": _ONE_CLIENT_ONLY,
    "ssl.ca.certificate.stores": _ONE_CLIENT_ONLY,
    "sasl.client.callback.handler.class": _JAVA_ONLY + ". For OAUTHBEARER " + _TOKEN_HINT,
    "sasl.login.callback.handler.class": _JAVA_ONLY + ". For OAUTHBEARER " + _TOKEN_HINT,
    "sasl.login.class": _JAVA_ONLY,
    "enable.sasl.oauthbearer.unsecure.jwt": "unsigned tokens are for broker tests only; " + _TOKEN_HINT,
}

_REFUSED_PREFIXES: Final = (
    ("sasl.kerberos.", _NO_KERBEROS),
    ("sasl.login.", _JAVA_ONLY),
    ("sasl.oauthbearer.", _TOKEN_HINT),
    ("ssl.engine.", _ONE_CLIENT_ONLY),
)


def is_security_key(key: str) -> bool:
    """Whether this module handles the key. Adapters must read such keys with :func:`parse_security` only."""
    return key.startswith(SECURITY_PREFIXES)


def _remedy(key: str) -> str:
    if key in _REFUSED:
        return _REFUSED[key]
    for prefix, remedy in _REFUSED_PREFIXES:
        if key.startswith(prefix):
            return remedy
    return f"it is not a supported security setting; supported are: {', '.join(sorted(_UNDERSTOOD))}"


# -- reading -----------------------------------------------------------------------------------------------------------


def parse_security(config: Mapping[str, object]) -> SecuritySettings:
    """Read the security keys of ``config`` (dotted keys without client prefix); ignore other keys.

    Raises:
        ConfigError: A key is not supported by both client libraries, or settings contradict each other.
    """
    given = {key: value for key, value in config.items() if is_security_key(key) and value is not None}
    for key in sorted(given):
        if key not in _UNDERSTOOD:
            raise ConfigError(f"{key} cannot be used: {_remedy(key)}", key=key)
    reader = _Reader(given)
    protocol = reader.protocol()
    ca_file, ca_pem = reader.trust()
    certificate_file, certificate_pem, key_file, key_pem = reader.identity()
    mechanism = reader.mechanism(protocol)
    username, password = reader.login(mechanism)
    reader.check_tls_versions()
    return SecuritySettings(
        protocol=protocol,
        ca_file=ca_file,
        ca_pem=ca_pem,
        certificate_file=certificate_file,
        certificate_pem=certificate_pem,
        key_file=key_file,
        key_pem=key_pem,
        key_password=reader.text("ssl.key.password"),
        crl_file=reader.readable_file("ssl.crl.location"),
        ciphers=reader.ciphers(),
        verify_hostname=reader.verify_hostname(),
        verify_certificate=reader.flag("enable.ssl.certificate.verification", default=True),
        mechanism=mechanism,
        username=username,
        password=password,
        token_source=reader.token_source(mechanism),
    )


_JAAS_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": (Mechanism.PLAIN,),
    "org.apache.kafka.common.security.scram.ScramLoginModule": (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512),
}
_JAAS: Final = re.compile(r"\s*(?P<module>[\w.$]+)\s+required\b(?P<options>.*?);?\s*", re.DOTALL)
_JAAS_OPTION: Final = re.compile(r"""(?P<name>\w+)\s*=\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)')""")


class _Reader:
    """Reader of groups of keys. Each error names the key and never shows a value that may be secret."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = given

    def text(self, key: str) -> str | None:
        value = self._given.get(key)
        if value is None:
            return None
        reveal = getattr(value, "get_secret_value", None)  # pydantic's SecretStr
        if callable(reveal):
            value = reveal()
        if not isinstance(value, str):
            raise ConfigError(f"{key} must be text, not {type(value).__name__}", key=key)
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._given.get(key)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        text = str(value).strip().lower()
        if text not in ("true", "false"):
            raise ConfigError(f"{key} must be true or false", key=key)
        return text == "true"

    def readable_file(self, key: str) -> str | None:
        path = self.text(key)
        if path is not None and not os.access(path, os.R_OK):
            raise ConfigError(f"{key}: no readable file at {path!r}", key=key)
        return path

    def _one_of(self, *keys: str) -> str | None:
        present = [key for key in keys if self._given.get(key) is not None]
        if len(present) > 1:
            raise ConfigError(f"{' and '.join(present)} configure the same thing; set only one of them", key=present[1])
        return present[0] if present else None

    def protocol(self) -> SecurityProtocol:
        value = (self.text("security.protocol") or "PLAINTEXT").upper()
        try:
            return SecurityProtocol(value)
        except ValueError:
            allowed = ", ".join(SecurityProtocol)
            raise ConfigError(
                f"security.protocol={value!r} is not allowed; use {allowed}", key="security.protocol"
            ) from None

    def _pem_store(self, kind: str, instead: str) -> None:
        location, type_key = f"ssl.{kind}.location", f"ssl.{kind}.type"
        store_type = (self.text(type_key) or "JKS").upper()
        if store_type != "PEM" and (type_key in self._given or location in self._given):
            key = location if location in self._given else type_key
            raise ConfigError(
                f"{key}: a store of type {store_type} cannot be used; set {instead}. {_PEM_HINT}", key=key
            )

    def trust(self) -> tuple[str | None, str | None]:
        """Return (file, inline PEM) of the trusted authorities; both None = the system's authorities."""
        self._pem_store("truststore", "ssl.ca.location")
        key = self._one_of("ssl.ca.location", "ssl.ca.pem", "ssl.truststore.location", "ssl.truststore.certificates")
        if key is None:
            return None, None
        return (self.readable_file(key), None) if key.endswith(".location") else (None, self.text(key))

    def identity(self) -> tuple[str | None, str | None, str | None, str | None]:
        """Return (certificate file, certificate PEM, key file, key PEM); all None = no client certificate."""
        self._pem_store("keystore", "ssl.certificate.location and ssl.key.location")
        certificate = self._one_of(
            "ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.certificate.chain", "ssl.keystore.location"
        )
        private = self._one_of("ssl.key.location", "ssl.key.pem", "ssl.keystore.key", "ssl.keystore.location")
        if certificate is None and private is None:
            return None, None, None, None
        if certificate is None or private is None:
            missing = "ssl.certificate.location" if certificate is None else "ssl.key.location"
            raise ConfigError(
                f"{missing} is missing: a client certificate needs the certificate and its key", key=missing
            )
        certificate_file = self.readable_file(certificate) if certificate.endswith(".location") else None
        key_file = self.readable_file(private) if private.endswith(".location") else None
        return (
            certificate_file,
            None if certificate_file else self.text(certificate),
            key_file,
            None if key_file else self.text(private),
        )

    def verify_hostname(self) -> bool:
        key = "ssl.endpoint.identification.algorithm"
        value = self.text(key)
        if value is None or value.lower() == "https":
            return True
        if value.lower() in ("", "none"):
            return False
        raise ConfigError(f"{key}={value!r} is not allowed; use https, or empty for no host name check", key=key)

    def ciphers(self) -> str | None:
        key = "ssl.cipher.suites"
        value = self._given.get(key)
        names = [
            str(name).strip() for name in (value if isinstance(value, (list, tuple)) else str(value or "").split(","))
        ]
        names = [part for name in names for part in name.split(":") if part]
        if any(name.startswith("TLS_") for name in names):
            raise ConfigError(f"{key} takes OpenSSL's names, for example ECDHE-RSA-AES256-GCM-SHA384", key=key)
        return ":".join(names) or None

    def check_tls_versions(self) -> None:
        """Raise ConfigError unless the settings allow TLS 1.2 and 1.3, which both libraries use.

        A restriction would have no effect, so it is refused.
        """
        versions = self._given.get("ssl.enabled.protocols")
        if versions is not None:
            names = versions if isinstance(versions, (list, tuple)) else str(versions).split(",")
            if {str(name).strip() for name in names} != {"TLSv1.2", "TLSv1.3"}:
                key = "ssl.enabled.protocols"
                raise ConfigError(f"{key} is always TLSv1.2,TLSv1.3 here; restrict versions on the broker", key=key)
        version = self.text("ssl.protocol")
        if version is not None and version not in ("TLS", "TLSv1.3"):
            raise ConfigError(
                "ssl.protocol must be TLSv1.3 or absent; restrict versions on the broker", key="ssl.protocol"
            )

    def mechanism(self, protocol: SecurityProtocol) -> Mechanism | None:
        key = self._one_of("sasl.mechanism", "sasl.mechanisms")
        if key is None:
            if protocol.sasl:
                # Java's default is GSSAPI, which is not available here. So users must choose a mechanism.
                raise ConfigError(
                    f"security.protocol={protocol} needs sasl.mechanism; use {', '.join(Mechanism)}",
                    key="sasl.mechanism",
                )
            return None
        value = (self.text(key) or "").upper()
        if value == "GSSAPI":
            raise ConfigError(f"{key}=GSSAPI cannot be used: {_NO_KERBEROS}", key=key)
        try:
            return Mechanism(value)
        except ValueError:
            raise ConfigError(f"{key}={value!r} is not allowed; use {', '.join(Mechanism)}", key=key) from None

    def login(self, mechanism: Mechanism | None) -> tuple[str | None, str | None]:
        """Return user name and password, from ``sasl.username`` and ``sasl.password`` or from ``sasl.jaas.config``."""
        if "sasl.jaas.config" in self._given:
            for other in ("sasl.username", "sasl.password"):
                self._one_of("sasl.jaas.config", other)
            return self._jaas(mechanism)
        username, password = self.text("sasl.username"), self.text("sasl.password")
        if mechanism is not None and mechanism is not Mechanism.OAUTHBEARER:
            for key, value in (("sasl.username", username), ("sasl.password", password)):
                if value is None:
                    raise ConfigError(f"sasl.mechanism={mechanism} needs {key}", key=key)
        return username, password

    def _jaas(self, mechanism: Mechanism | None) -> tuple[str, str]:
        key = "sasl.jaas.config"
        match = _JAAS.fullmatch(self.text(key) or "")
        if match is None:
            raise ConfigError(
                f'{key} must read: <login module> required username="..." password="..."; '
                "- or set sasl.username and sasl.password instead",
                key=key,
            )
        mechanisms = _JAAS_MODULES.get(match["module"])
        if mechanisms is None:
            raise ConfigError(
                f"{key}: login module {match['module']} is not supported; use PlainLoginModule or ScramLoginModule. "
                f"For OAUTHBEARER {_TOKEN_HINT}",
                key=key,
            )
        if mechanism not in mechanisms:
            raise ConfigError(f"{key}: {match['module']} is not for sasl.mechanism={mechanism}", key=key)
        options = {
            found["name"]: found["single"] if found["double"] is None else re.sub(r"\\(.)", r"\1", found["double"])
            for found in _JAAS_OPTION.finditer(match["options"])
        }
        leftover = _JAAS_OPTION.sub("", match["options"]).strip()
        unknown = sorted(options.keys() - {"username", "password"})
        if leftover or unknown or len(options) != 2:
            what = (
                f"options {', '.join(unknown)} are not supported" if unknown else "needs username and password, quoted"
            )
            raise ConfigError(f"{key}: {what}", key=key)
        return options["username"], options["password"]

    def token_source(self, mechanism: Mechanism | None) -> TokenSource | None:
        key = "sasl.oauthbearer.token.source"
        source = self._given.get(key)
        if mechanism is not Mechanism.OAUTHBEARER:
            if source is not None:
                raise ConfigError(f"{key} is used only with sasl.mechanism=OAUTHBEARER", key=key)
            return None
        if isinstance(source, str) and not callable(source):
            source = _imported(source, key)
        if not callable(source):
            raise ConfigError(f"sasl.mechanism=OAUTHBEARER: {_TOKEN_HINT}", key=key)
        return source


def _imported(name: str, key: str) -> object:
    module_name, _, function = name.partition(":")
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:  # importing runs user code
        text = f"{key} = {name!r}: {named(error)}; expected package.module:function"
        raise ConfigError(text, key=key) from None
    found: object = getattr(module, function, None)
    if found is None:
        raise ConfigError(f"{key}: no function {function} in module {module_name}", key=key)
    return found
