"""Detection of stable groups and of groups that repeat the same decisions in a cycle."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, cycle

from streams_py.member.group_model.rest import Rest, Round, follow


def test_group_is_at_rest_when_nothing_goes_on_and_nothing_has_changed() -> None:
    rounds = [Round("a", continues=True), Round("b", continues=False, changed=True), Round("b", continues=False)]
    assert follow(rounds, 50) == Rest(3, stable=True)


def test_no_round_is_begun_after_the_last_one_that_counts() -> None:
    begun = []

    def rounds(stable_in: int) -> Iterator[Round]:
        for number in count(1):
            begun.append(number)
            yield Round(number, continues=number < stable_in)

    assert follow(rounds(3), 50).rounds == 3
    assert len(begun) == 3
    begun.clear()
    assert follow(rounds(1000), 7) == Rest(7, stable=False)
    assert len(begun) == 7


def test_group_is_not_at_rest_when_rounds_end_before() -> None:
    assert follow([Round("a", continues=True)], 50) == Rest(1, stable=False)


def test_circle_has_the_length_of_its_shortest_repetition() -> None:
    flapping = (Round(decision, continues=False, changed=True) for decision in cycle("abc"))
    assert follow(flapping, 50) == Rest(50, stable=False, cycle=3, endless=False)


def test_circle_is_endless_when_every_round_of_it_leads_to_the_next() -> None:
    asking = (Round("the same", continues=True) for _ in count())
    assert follow(asking, 50) == Rest(50, stable=False, cycle=1, endless=True)
    resting = (Round("ab"[n % 2], continues=n % 2 == 0, changed=True) for n in count())
    assert follow(resting, 50) == Rest(50, stable=False, cycle=2, endless=False)


def test_what_a_group_did_at_first_does_not_hide_a_circle() -> None:
    rounds = (Round(n if n < 20 else n % 2, continues=True) for n in count())
    assert follow(rounds, 50).cycle == 2
