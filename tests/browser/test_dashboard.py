"""The page of a group in a real Chromium, as a user sees and operates it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streams_protocol import LATEST_OFFSET
from streams_protocol.types import TaskId
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.dashboard.app import serve_board
from streams_py.dashboard.board import Board
from streams_py.dashboard.watcher import GroupWatcher
from streams_py.ports.described_groups import DescribedGroup
from tests.support.chromium import MISSING, Chromium
from tests.support.inspection.groups import FakeCluster, rebalanced, said, topics

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

STANDBYS = AssignmentConfigs(num_standby_replicas=1)
TAB, ENTER, ESCAPE, DOWN, RIGHT = "\ue004", "\ue007", "\ue00c", "\ue015", "\ue014"
OWNERS = """return Object.fromEntries([...document.querySelectorAll('#grid tbody tr')].map((row) => [
    row.querySelector('th button').textContent,
    row.querySelector('button.active')?.getAttribute('aria-label').split(' ')[0] ?? null]))"""
FOCUS = "return document.activeElement.getAttribute('aria-label') ?? document.activeElement.id"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    browser = Chromium(tmp_path_factory.mktemp("chromium") / "log")
    yield browser
    browser.close()


def group_of(members: int, partitions: int, *, name: str = "client") -> FakeCluster:
    """Each member runs every n-th task, and has standbys of its neighbour's stateful tasks."""
    cluster = FakeCluster(topics(partitions), {"in": 7, "app-counts-changelog": 500})
    everything = [TaskId(sub, n) for sub in (0, 1) for n in range(partitions)]
    joined = {}
    for number in range(members):
        mine, other = everything[number::members], everything[(number + 1) % members :: members]
        sums = dict.fromkeys((t for t in other if t.subtopology == 0), 480)
        sums |= dict.fromkeys((t for t in mine if t.subtopology == 0), LATEST_OFFSET)
        joined[f"m{number:03}"] = said(number, owned=mine, sums=sums)
    rebalanced(cluster, joined, partitions, STANDBYS)
    named = tuple(member._replace(client_id=f"{name}-{member.member_id}") for member in cluster.described.members)
    cluster.described = cluster.described._replace(members=named)
    return cluster


@pytest.fixture
def cluster() -> FakeCluster:
    return group_of(2, 2)


@pytest.fixture
def page(chromium: Chromium, cluster: FakeCluster) -> Iterator[Chromium]:
    board = Board()
    watcher = GroupWatcher(cluster, "app", board, every_s=0.2)
    with serve_board(board, watcher) as server:
        watcher.start()
        chromium.prefer(dark=False)
        chromium.open(server.url)
        chromium.until("return document.querySelectorAll('#grid tbody tr').length", "the grid")
        yield chromium
        complaints = chromium.complaints()
        chromium.open("about:blank")
        watcher.stop()
    assert complaints == [], "refused resources and errors"


def test_the_grid_shows_who_runs_what_and_copies_with_their_lag(page: Chromium) -> None:
    assert page.run(OWNERS) == {"0_0": "A1", "0_1": "B1", "1_0": "A1", "1_1": "B1"}
    label = "B1 has a standby of 0_0, at most 20 records behind"
    page.until(f"return document.querySelector('[aria-label=\"{label}\"]')", "the standby's lag")
    paint = page.run("return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1")
    assert 0 <= paint < 5_000, "ms; a busy machine may take a while, hanging it would be longer"


def test_a_member_that_is_gone_is_seen_with_one_of_the_next_refreshes(page: Chromium, cluster: FakeCluster) -> None:
    left = cluster.described.members[:1]
    cluster.described = DescribedGroup("app", "PreparingRebalance", "consumer", "", left)
    page.until(f"{OWNERS.replace('return', 'const owners =', 1)}; return owners['0_1'] === null", "no member at 0_1")
    assert page.run(OWNERS) == {"0_0": "A1", "0_1": None, "1_0": "A1", "1_1": None}
    assert "2 of 4 tasks run on no member now" in page.text()
    assert "The group is rebalancing" in page.text()


def test_everything_can_be_reached_with_the_keyboard(page: Chromium) -> None:
    page.run("document.getElementById('filter').focus()")
    page.press(TAB)
    assert page.run(FOCUS) == "why is task 0_0 where it is?", "one stop for the whole grid"
    page.press(DOWN, RIGHT)
    assert str(page.run(FOCUS)).startswith("A1 has a standby of 0_1")
    page.press(RIGHT)
    assert page.run(FOCUS) == "B1 runs 0_1"
    page.press(ENTER)
    page.until("return document.getElementById('reason').textContent.length > 9", "the reason")
    assert "0_1 is active on B (" in page.text()
    assert page.run(FOCUS) == "h-why", "where a screen reader continues"
    page.press(ESCAPE)
    assert page.run(FOCUS) == "B1 runs 0_1"
    assert page.run("return document.getElementById('why').hidden")


def test_the_focus_survives_news(page: Chromium, cluster: FakeCluster) -> None:
    page.run("document.querySelector('#grid button').focus()")
    page.press(DOWN, DOWN, DOWN)
    assert page.run(FOCUS) == "why is task 1_1 where it is?"
    cluster.described = cluster.described._replace(members=cluster.described.members[1:])
    page.until(f"{OWNERS.replace('return', 'const owners =', 1)}; return owners['0_0'] === null", "the news")
    assert page.run(FOCUS) == "why is task 1_1 where it is?"


def test_light_and_dark_are_what_the_user_prefers(page: Chromium) -> None:
    def contrast() -> float:
        return float(
            page.run(
                """const light = (text) => {
                     const [r, g, b] = text.match(/\\d+/g).map((n) => {
                       n /= 255; return n <= 0.03928 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4; });
                     return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
                   const all = [['#grid button.active', true], ['#grid button.standby', false],
                                ['#grid td.reads', false], ['#summary', false], ['#members td', false]];
                   return Math.min(...all.map(([where, own]) => {
                     const style = getComputedStyle(document.querySelector(where));
                     const around = document.querySelector(where).closest('section') ?? document.body;
                     const back = getComputedStyle(own ? document.querySelector(where) : around).backgroundColor;
                     const [a, b] = [light(style.color), light(back)].sort((x, y) => y - x);
                     return (a + 0.05) / (b + 0.05); }))"""
            )
        )

    paper = "return getComputedStyle(document.body).backgroundColor"
    day = page.run(paper)
    assert contrast() >= 4.5, "WCAG AA"
    page.prefer(dark=True)
    assert page.run(paper) != day
    assert contrast() >= 4.5


def test_what_is_not_there_takes_no_room_and_members_are_seen_whole(page: Chromium) -> None:
    assert page.run("return document.getElementById('line').getBoundingClientRect().height") == 0
    heads = (
        "return [...document.querySelectorAll('#members th')].filter((th) => th.offsetWidth).map((th) => th.innerText)"
    )
    assert page.run(heads) == ["", "client", "host", "active", "standby", "warm-up", "input lag"], "no racks, no tags"
    hidden = "const box = document.querySelector('#members').parentElement; return box.scrollWidth - box.clientWidth"
    assert page.run(hidden) == 0


def test_narrow_windows_need_no_sideways_scrolling_of_the_page(page: Chromium) -> None:
    page.narrow(390)
    try:
        assert page.run("return innerWidth") == 390
        assert page.run("return document.documentElement.scrollWidth") == 390
    finally:
        page.narrow(None)


class TestStreamThreads:
    @pytest.fixture
    def cluster(self) -> FakeCluster:
        return group_of(2, 2, name="app-209a0821-31e0-4d08-8c5b-fe45fb5db15e-StreamThread-1-consumer")

    def test_have_short_names_and_tell_the_whole_one_on_a_look(self, page: Chromium) -> None:
        cell = page.run(
            "const cell = document.querySelector('#members td:nth-child(2)'); return [cell.textContent, cell.title]"
        )
        assert cell[0].startswith("209a0821… StreamThread-1")
        assert cell[1].startswith("app-209a0821-31e0")


class TestNamesOfOthers:
    @pytest.fixture
    def cluster(self) -> FakeCluster:
        return group_of(2, 2, name="<img src=x onerror=alert(1)>'\"&")

    def test_are_shown_as_they_are_and_do_nothing(self, page: Chromium) -> None:
        assert "<img src=x onerror=alert(1)>'\"&-m000" in page.text()
        assert page.run("return document.images.length") == 0


class TestLargeGroups:
    @pytest.fixture
    def cluster(self) -> FakeCluster:
        return group_of(100, 2_500)

    def test_are_shown_page_by_page(self, page: Chromium) -> None:
        assert page.run("return document.querySelectorAll('#grid tbody tr').length") == 60
        assert "1–60 of 5,000" in page.text()
        page.click("#after")
        assert "61–120 of 5,000" in page.text()
        page.run(
            """const box = document.getElementById('filter'); box.value = '1_2499';
               box.dispatchEvent(new Event('input'))"""
        )
        assert list(page.run(OWNERS)) == ["1_2499"]
        redraw = page.run(
            """const box = document.getElementById('filter'); box.value = ''; const began = performance.now();
               box.dispatchEvent(new Event('input')); return performance.now() - began"""
        )
        assert redraw < 5_000, "ms"
