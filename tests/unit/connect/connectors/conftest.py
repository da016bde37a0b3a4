"""A PostgreSQL server for these tests alone."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import pytest

from tests.support.postgresql import PASSWORD, NoPostgresqlError, postgresql_server


@pytest.fixture(scope="session", name="postgresql_server")
def _postgresql_server() -> Iterator[str]:
    """The URL of an empty server, with the password."""
    with contextlib.ExitStack() as until_end:
        try:
            url = until_end.enter_context(postgresql_server(PASSWORD))
        except NoPostgresqlError as missing:
            reason = f"tests of the PostgreSQL connectors are skipped: {missing}"
            warnings.warn(reason, stacklevel=1)  # seen without -rs
            pytest.skip(reason)
        yield url
