"""A map function with realistic work: it cleans a click with pydantic and pure Python, in about 25 us."""

from __future__ import annotations

import hmac
import re
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, Field

_SALT: Final = b"benchmark"
_AGENT: Final = re.compile(r"(?P<name>[a-z][a-z .-]*)/(?P<major>\d+)(?:\.\d+)*", re.IGNORECASE)
_WORD: Final = re.compile(r"[a-z]+")


class _Click(BaseModel):
    """An input value (``benchmarks.cluster.record_value``)."""

    n: int = Field(ge=0)
    user: str = Field(pattern=r"^user-\d+$")
    page: str = Field(max_length=2000)
    agent: str
    ok: bool


class _Visit(BaseModel):
    """An output value."""

    n: int
    visitor: str
    section: str
    words: list[str]
    campaign: str | None
    browser: str
    version: int
    seen: datetime


def clean(value: dict[str, Any]) -> dict[str, Any]:
    """Validate a click, parse its address and browser, pseudonymise its user, and validate the result."""
    click = _Click.model_validate(value)
    address = urlsplit(f"https://example.org{click.page}?utm_campaign=c{click.n % 7}&from={click.n}")
    agent = _AGENT.match(click.agent)
    visit = _Visit(
        n=click.n + 1,
        visitor=hmac.digest(_SALT, click.user.encode(), "sha256").hex(),
        section=address.path.split("/", 2)[1],
        words=_WORD.findall(address.path.lower()),
        campaign=parse_qs(address.query).get("utm_campaign", [None])[0],
        browser=agent["name"] if agent else "unknown",
        version=int(agent["major"]) if agent else 0,
        seen=datetime.fromtimestamp(1_700_000_000 + click.n / 1000, UTC),
    )
    return visit.model_dump(mode="json")
