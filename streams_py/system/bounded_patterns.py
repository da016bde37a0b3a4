"""Regular expressions that take a bounded number of steps, whatever the pattern and the text.

The matcher of :mod:`re` tries one path after the other. With a pattern such as ``(a+)+$``, the number of paths doubles
with each character of the text. The matcher also holds the interpreter lock, so all threads of the process wait.

A :class:`BoundedPattern` estimates the steps of all paths. If they are few for the length of the text, :mod:`re`
searches. Otherwise, the pattern is searched here: all paths advance together by one character, so the time grows with
the product of the lengths of pattern and text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import zip_longest

# The parser of `re` is private. Its trees have had the same form in all supported versions of Python, and tests compare
# the results with those of `re`.
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

_DIRECT_MAX: Final = 1_000_000
"""Estimated steps up to which :mod:`re` searches. It takes about 10 ns for each."""
_PER_STEP: Final = 100
"""Number of steps of :mod:`re` that take as long as one step of this module."""
_UNCERTAIN_MAX: Final = 300_000_000
"""Maximum sum of the estimates of all searches by :mod:`re` that share one budget.

An estimate is often much too high, so a search takes fewer steps from the budget. If the estimates are right, this
limit bounds the time.
"""
_NODES_MAX: Final = 10_000
"""Maximum size of a pattern with its repetitions written out."""
_LENGTH_MAX: Final = 50_000
"""Maximum length of a pattern. The time of the parser grows faster than the length."""
_CHARACTER: Final = 5
"""Steps to parse one character of a pattern."""
_ITEM: Final = 20
_WIDE_ITEM: Final = 200
_RANGE: Final = 1 / 8
_FOLDED_RANGE: Final = 1 / 2
_RANGE_MAX: Final = 0x10000
"""Maximum size of a range of characters that :mod:`re` writes out.

The values above are steps to compile an item of a pattern, an item beyond Latin-1, and one character of a range, with
and without upper and lower case. A search compares a character with each item of a set beyond this size.
"""
_COMPARED: Final = 1 / 5
"""Steps of :mod:`re` to compare a character with an item of a set beyond that size."""
_FORK: Final = 2
"""Steps of :mod:`re` to begin a group, a branch, an assertion or a round of a repetition."""
_SAVED: Final = 1 / 8
"""Steps of :mod:`re` to save the place of one group there."""
_COPIED: Final = 10
"""Items of a set that are copied in one step of this module."""
_MANY: Final = 1e30
_CHARACTERS: Final = frozenset({ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN})
_REPEATS: Final = frozenset({ops.MAX_REPEAT, ops.MIN_REPEAT})
_LOOKS: Final = frozenset({ops.ASSERT, ops.ASSERT_NOT})
_AT_END: Final = frozenset({ops.AT_END, ops.AT_END_STRING})
_AT_START: Final = frozenset({ops.AT_BEGINNING, ops.AT_BEGINNING_STRING})


class StepsExceededError(ValueError):
    """A search would take too many steps. The message contains neither the pattern nor the text."""


class Steps:
    """A budget of steps. A step takes about one microsecond."""

    __slots__ = ("_left", "_uncertain")

    def __init__(self, count: int) -> None:
        self._left = count
        self._uncertain = _UNCERTAIN_MAX

    def take(self, count: int = 1) -> None:
        """Use steps. Raises StepsExceededError if too few are left."""
        self._left -= count
        if self._left < 0:
            raise StepsExceededError("it takes too many steps")

    def may_risk(self, estimate: int) -> bool:
        """Return whether a search may need up to ``estimate`` steps although it takes fewer. Adds up the estimates."""
        if estimate > self._uncertain:
            return False
        self._uncertain -= estimate
        return True


class BoundedPattern:
    """A compiled regular expression.

    Args:
        pattern: The text of the expression.
        steps: Budget for its compilation.

    Raises:
        re.error: The pattern is not a regular expression.
        StepsExceededError: The pattern is too long, or takes too many steps to compile.
    """

    def __init__(self, pattern: str, steps: Steps) -> None:
        if len(pattern) > _LENGTH_MAX:
            raise StepsExceededError(f"a regular expression is longer than {_LENGTH_MAX} characters")
        steps.take(len(pattern) * _CHARACTER)
        self._tree = _parser.parse(pattern)
        self._weight, self._items = map(int, _weight(self._tree, self._tree.state.flags))
        steps.take(self._weight)
        self._compiled = re.compile(pattern)
        self._size = len(str(self._tree))
        self._starts_once = _starts_once(self._tree, self._compiled.flags)
        self._estimates: dict[int, float] = {}  # by number of bits of the text's length
        self._program: _Program | None = None

    def estimate(self, length: int) -> float:
        """Return the largest number of steps that :mod:`re` may take for a text of this length."""
        found = self._estimates.get(bits := length.bit_length())
        if found is None:
            longest = (1 << bits) - 1
            starts = 1 if self._starts_once else longest + 1
            _, each = _Estimate(longest, self._compiled.groups).of(self._tree, self._compiled.flags)
            found = self._estimates[bits] = min(each * starts + longest + self._size, _MANY)
        return found

    def search(self, text: str, steps: Steps) -> bool:
        """Return whether the pattern matches anywhere in ``text``, as :func:`re.search` does."""
        return self._find(text, steps, is_full=False)

    def fullmatch(self, text: str, steps: Steps) -> bool:
        """Return whether the pattern matches all of ``text``, as :func:`re.fullmatch` does."""
        return self._find(text, steps, is_full=True)

    def _find(self, text: str, steps: Steps, *, is_full: bool) -> bool:
        if len(text).bit_length() not in self._estimates:
            steps.take(self._items)
        estimate = self.estimate(len(text))
        if estimate <= _DIRECT_MAX and steps.may_risk(int(estimate)):
            steps.take(min(int(estimate) // _PER_STEP, len(text) + self._size) + 1)
            return (self._compiled.fullmatch(text) if is_full else self._compiled.search(text)) is not None
        if self._program is None:
            steps.take(self._weight)
            self._program = _Program(self._tree, self._compiled.flags, steps)
        return self._program.run(text, steps, is_search=not is_full, is_full=is_full)


def _weight(part: Any, flags: int) -> tuple[float, int]:
    """Return the steps to compile a part of the parser's tree, and the number of its items."""
    if isinstance(part, tuple) and len(part) == 2:
        if part[0] is ops.RANGE:
            first, last = part[1]
            return _ITEM + min(last - first, _RANGE_MAX) * (_FOLDED_RANGE if flags & re.IGNORECASE else _RANGE), 1
        if part[0] is ops.SUBPATTERN:
            flags = (flags | part[1][1]) & ~part[1][2]
    if isinstance(part, tuple | list | _parser.SubPattern):
        found = [_weight(item, flags) for item in part]
        return _ITEM + sum(weight for weight, _ in found), 1 + sum(items for _, items in found)
    return (_WIDE_ITEM if isinstance(part, int) and part > 255 else 1), 0


def _starts_once(tree: Any, flags: int) -> bool:
    """Whether a match can start only at the beginning of the text."""
    if not len(tree):
        return False
    op, argument = tree[0]
    if op is ops.SUBPATTERN:
        return _starts_once(argument[3], flags | argument[1])
    return op is ops.AT and argument in _AT_START and not (flags & re.MULTILINE and argument is ops.AT_BEGINNING)


def _ends_at(body: Any, following: tuple[Any, Any], flags: int) -> bool:
    """Whether a repetition of one character can end at only one place of a text.

    That is so if the next item of the pattern is the end of the text, or a character that the repetition does not
    accept.
    """
    if len(body) != 1 or body[0][0] not in _CHARACTERS:
        return False
    op, argument = following
    if op is ops.AT:
        if argument not in _AT_END or flags & re.MULTILINE:
            return False
        # ``$`` also matches before the last line break, which the repetition must not accept then.
        return argument is ops.AT_END_STRING or not _accepts_code(body[0][0], body[0][1], flags, ord("\n"))
    if op is not ops.LITERAL or flags & re.IGNORECASE:
        return False
    return not _accepts_code(body[0][0], body[0][1], flags, argument)


def _accepts_code(op: Any, argument: Any, flags: int, code: int) -> bool:
    """Whether an item of one character accepts a character, with upper and lower case distinguished."""
    if op is ops.ANY:
        return bool(flags & re.DOTALL) or code != ord("\n")
    if op is not ops.IN:
        return (argument == code) is (op is ops.LITERAL)
    is_negated = found = False
    for kind, value in argument:
        if kind is ops.NEGATE:
            is_negated = True
        elif kind is ops.LITERAL:
            found = found or value == code
        elif kind is ops.RANGE:
            found = found or value[0] <= code <= value[1]
        else:  # a category
            found = found or _compiled(ops.IN, [(kind, value)], flags).fullmatch(chr(code)) is not None
    return found is not is_negated


def _scan(op: Any, argument: Any) -> float:
    """Return the steps of :mod:`re` to compare an item of one character with a character of the text."""
    if op is not ops.IN:
        return 1.0
    lasts = (value[1] if kind is ops.RANGE else value for kind, value in argument if kind in (ops.LITERAL, ops.RANGE))
    return 1 + len([last for last in lasts if last >= _RANGE_MAX]) * _COMPARED


class _Estimate:
    """The largest numbers that are possible for a text of a length, from one place of the text.

    Args:
        length: Length of the text.
        groups: Number of groups of the pattern.
    """

    def __init__(self, length: int, groups: int) -> None:
        self._length = length
        self._saved = groups * _SAVED
        self._fork = _FORK + self._saved

    def of(self, tree: Any, flags: int) -> tuple[float, float]:
        """Return the number of ways in which a part of a pattern can match, and the steps to try all of them."""
        ways = steps = 1.0
        items = list(tree)
        for (op, argument), following in zip_longest(items, items[1:]):
            its_ways, its_steps = self._of_item(op, argument, flags)
            steps = min(steps + ways * its_steps, _MANY)
            if not (op in _REPEATS and following is not None and _ends_at(argument[2], following, flags)):
                ways = min(ways * its_ways, _MANY)
        return ways, steps

    def _of_item(self, op: Any, argument: Any, flags: int) -> tuple[float, float]:
        if op in _REPEATS or op is ops.POSSESSIVE_REPEAT:
            return self._of_repeat(op, argument, flags)
        if op is ops.BRANCH or op is ops.GROUPREF_EXISTS:
            branches = argument[1] if op is ops.BRANCH else argument[1:]
            found = [self.of(branch, flags) for branch in branches if branch is not None]
            return max(sum(ways for ways, _ in found), 1.0), sum(steps + self._fork for _, steps in found)
        if op is ops.SUBPATTERN:
            ways, steps = self.of(argument[3], (flags | argument[1]) & ~argument[2])
            return ways, steps + _FORK
        if op is ops.ATOMIC_GROUP or op in _LOOKS:  # its first match is the only one
            return 1.0, self.of(argument if op is ops.ATOMIC_GROUP else argument[1], flags)[1] + self._fork
        if op is ops.GROUPREF:
            return 1.0, 1.0 + self._length
        return 1.0, _scan(op, argument) if op in _CHARACTERS else 1.0

    def _of_repeat(self, op: Any, argument: Any, flags: int) -> tuple[float, float]:
        least, most, body = int(argument[0]), int(argument[1]), argument[2]
        # :mod:`re` goes through all required rounds, also without a character. An additional round without a character
        # is the last one.
        width = int(body.getwidth()[0])
        rounds = min(most, self._length // width) if width else least + min(most - least, self._length + 1)
        if len(body) == 1 and body[0][0] in _CHARACTERS:
            ways, steps = 1.0, _scan(*body[0]) + self._saved + 1
        else:
            ways, steps = self.of(body, flags)
            steps += self._fork
        if op is ops.POSSESSIVE_REPEAT:  # the first match of each round is the only one
            return 1.0, (rounds + 1) * steps
        try:
            ways = min(ways**rounds, _MANY)
        except OverflowError:
            ways = _MANY
        return ways * (max(rounds - least, 0) + 1), (rounds + 1) * ways * steps


class _Program:
    """The pattern as a graph of states. A state is a number.

    Its entry in one of the dicts says what leads to the next state: a character, a place or a lookaround.
    """

    def __init__(self, tree: Any, flags: int, steps: Steps) -> None:
        self._steps = steps  # the budget of the search that needs the graph first
        self._characters: dict[int, tuple[re.Pattern[str], dict[str, bool], int, int]] = {}
        self._splits: dict[int, tuple[int, ...]] = {}
        self._places: dict[int, tuple[re.Pattern[str], int]] = {}
        self._looks: dict[int, tuple[_Program, bool, int | None, int]] = {}
        self._end = 0
        self._count = 1
        self._first = self._add(tree, flags, self._end)

    # -- building, from the end of the pattern to its beginning ------------------------------------------------

    def _new(self) -> int:
        self._count += 1
        self._steps.take(_ITEM // 4)
        if self._count > _NODES_MAX:
            raise StepsExceededError("the regular expression is too large")
        return self._count - 1

    def _add(self, tree: Any, flags: int, after: int) -> int:
        self._steps.take(1 + len(tree))
        for op, argument in reversed(list(tree)):
            after = self._add_one(op, argument, flags, after)
        return after

    def _add_one(self, op: Any, argument: Any, flags: int, after: int) -> int:
        if op in _REPEATS:
            return self._add_repeat(argument, flags, after)
        if op is ops.SUBPATTERN:
            return self._add(argument[3], (flags | argument[1]) & ~argument[2], after)
        state = self._new()
        if op in _CHARACTERS:
            if op is ops.IN:
                self._steps.take(len(argument) // _COPIED)
            scan = int(_scan(op, argument)) // _PER_STEP
            self._characters[state] = (_compiled(op, argument, flags), {}, scan, after)
        elif op is ops.AT:
            self._places[state] = (_compiled(op, argument, flags), after)
        elif op is ops.BRANCH:
            self._splits[state] = tuple(dict.fromkeys(self._add(branch, flags, after) for branch in argument[1]))
        elif op in _LOOKS:
            direction, body = argument
            width = None if direction > 0 else int(body.getwidth()[0])
            self._looks[state] = (_Program(body, flags, self._steps), op is ops.ASSERT, width, after)
        elif op is ops.FAILURE:
            self._splits[state] = ()
        else:
            raise StepsExceededError("a regular expression with back references may take too many steps")
        return state

    def _add_repeat(self, argument: Any, flags: int, after: int) -> int:
        least, most, body = argument
        if not body.getwidth()[1]:  # all rounds are at the same place, so they have the same result
            least = most = min(int(least), 1)
        if most is ops.MAXREPEAT:
            loop = self._new()
            self._splits[loop] = (self._add(body, flags, loop), after)
            first = loop
        else:
            first = after
            for _ in range(int(most) - int(least)):
                state = self._new()
                self._splits[state] = (self._add(body, flags, first), after)
                first = state
        for _ in range(int(least)):
            first = self._add(body, flags, first)
            self._new()  # counts towards the limit, because a body may be empty
        return first

    # -- searching ---------------------------------------------------------------------------------------------

    def run(
        self, text: str, steps: Steps, *, start: int = 0, end: int | None = None, is_search: bool, is_full: bool
    ) -> bool:
        """Return whether the pattern matches from ``start``, or from any later position if ``is_search``.

        ``is_full``: the match must end at ``end`` (None: at the end of the text).
        """
        end = len(text) if end is None else end
        current: set[int] = set()
        for at in range(start, end + 1):
            if at == start or is_search:
                current.add(self._first)
            elif not current:
                return False
            states = self._reachable(current, text, at, steps)
            if self._end in states and (at == end or not is_full):
                return True
            if at == end:
                return False
            character, current = text[at], set()
            for state in states:
                found = self._characters.get(state)
                if found is not None and _accepts(found[0], found[1], character, found[2], steps):
                    current.add(found[3])
        return False

    def _reachable(self, states: set[int], text: str, at: int, steps: Steps) -> set[int]:
        """Return all states that can be reached without a character."""
        reached, left = set(states), list(states)
        while left:
            steps.take()
            state = left.pop()
            following = self._splits.get(state, ())
            if (place := self._places.get(state)) is not None and place[0].match(text, at) is not None:
                following = (place[1],)
            elif (look := self._looks.get(state)) is not None and self._looks_like(look, text, at, steps):
                following = (look[3],)
            for one in following:
                if one not in reached:
                    reached.add(one)
                    left.append(one)
        return reached

    @staticmethod
    def _looks_like(look: tuple[_Program, bool, int | None, int], text: str, at: int, steps: Steps) -> bool:
        program, is_wanted, width, _ = look
        if width is None:
            return program.run(text, steps, start=at, is_search=False, is_full=False) is is_wanted
        if at < width:
            return not is_wanted
        return program.run(text, steps, start=at - width, end=at, is_search=False, is_full=True) is is_wanted


def _accepts(pattern: re.Pattern[str], known: dict[str, bool], character: str, scan: int, steps: Steps) -> bool:
    found = known.get(character)
    if found is None:
        steps.take(scan)
        found = pattern.fullmatch(character) is not None
        if len(known) < 256:
            known[character] = found
    return found


def _compiled(op: Any, argument: Any, flags: int) -> re.Pattern[str]:
    """Return one item of a pattern as a pattern of its own."""
    return _compiled_once(op, tuple(argument) if isinstance(argument, list) else argument, flags)


@lru_cache(10_000)
def _compiled_once(op: Any, argument: Any, flags: int) -> re.Pattern[str]:
    from re import _compiler  # type: ignore[attr-defined]

    state = _parser.State()
    state.flags = flags
    compiled: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, [(op, argument)]), flags)
    return compiled
