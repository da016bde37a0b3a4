"""Which application owns an internal topic: names are ambiguous, groups expire."""

from __future__ import annotations

import pytest

from streams_py.topology.topic_owners import Owner, owners_of

APPLICATION, OTHER, UNCERTAIN = Owner.APPLICATION, Owner.OTHER, Owner.UNCERTAIN
GENERATED = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"


@pytest.mark.parametrize(
    ("application_id", "topic", "groups", "owner"),
    [
        ("app", "app-x-changelog", (), APPLICATION),
        ("app", "app-x-repartition", ("app", "app-two"), APPLICATION),
        ("app", "app-x-subscription-registration-topic", (), APPLICATION),
        ("app", f"app-{GENERATED}-changelog", (), APPLICATION),
        ("app", f"app-{GENERATED}-repartition", (), APPLICATION),
        ("app", "app-KSTREAM-JOINTHIS-0000000004-store-changelog", (), APPLICATION),
        ("app", "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic", (), APPLICATION),
        ("app", "app-two-x-changelog", ("app-two",), OTHER),
        ("app", "app-two-x-changelog", ("app", "app-two", "app-two-x"), OTHER),
        ("app", "app-two-x-changelog", ("app",), UNCERTAIN),
        ("app", "app-two-x-repartition", (), UNCERTAIN),
        ("app", "app-two-x-subscription-response-topic", (), UNCERTAIN),
        ("app", f"app-two-{GENERATED}-changelog", (), OTHER),
        ("app", "app-two-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000006-topic", (), OTHER),
        ("app-two", f"app-two-{GENERATED}-changelog", ("app",), APPLICATION),
        ("app-two", "app-two-x-changelog", ("app-two",), APPLICATION),
        ("app-two", "app-two-x-changelog", ("app", "app-two"), UNCERTAIN),
    ],
)
def test_owner_follows_from_groups_and_names(
    application_id: str, topic: str, groups: tuple[str, ...], owner: Owner
) -> None:
    found = owners_of(application_id, [topic], groups=groups)[topic]
    assert found.owner is owner
    assert found.why


@pytest.mark.parametrize("topic", ["app", "app-notes", "app-changelog", "other-x-changelog", "__consumer_offsets"])
def test_other_topics_are_left_out(topic: str) -> None:
    assert owners_of("app", [topic], own=[topic]) == {}


def test_topology_counts_more_than_names_and_groups() -> None:
    topic = "app-two-x-changelog"
    assert owners_of("app", [topic], groups=("app-two",), own=(topic,))[topic].owner is APPLICATION


def test_reason_names_the_other_applications() -> None:
    found = owners_of("app-two", ["app-two-x-y-changelog"], groups=("app",))["app-two-x-y-changelog"]
    assert found.why == "its name also fits an application.id of app, app-two-x"
