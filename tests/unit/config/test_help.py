"""What a configuration says of itself."""

from __future__ import annotations

import pydoc

import pytest

from streams_py.config.help import default_of, key_of, meaning_of
from streams_py.config.streams_config import StreamsConfig, known_keys

_FIELDS = {key_of(name, field): field for name, field in StreamsConfig.model_fields.items() if key_of(name, field)}


@pytest.mark.parametrize("key", sorted(known_keys()))
def test_key_says_what_it_means_and_when_to_change_it(key: str) -> None:
    meaning, change = meaning_of(_FIELDS[key])
    assert meaning.endswith(".")
    assert change.endswith(".")


def test_help_has_every_key_with_its_default_and_nothing_of_pydantic() -> None:
    text = pydoc.plain(pydoc.render_doc(StreamsConfig))
    for key, field in _FIELDS.items():
        default = default_of(field)
        assert f" {key} (required)\n" if default == "required" else f" {key} = {default}".rstrip() in text
    before, _, after = text.partition("Method resolution order")
    assert "pydantic" not in before
    assert "of(source" in after
    assert not {"model_dump", "model_fields", "parse_obj", "inherited from"} & set(text.split())


def test_instance_keeps_its_own_short_description() -> None:
    config = StreamsConfig.of(application_id="a", bootstrap_servers="embedded")
    assert repr(config) == "StreamsConfig(application.id='a', bootstrap.servers='embedded')"
