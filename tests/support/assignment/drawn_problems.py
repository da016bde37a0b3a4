"""Random problems for all assignors."""

from __future__ import annotations

from hypothesis import strategies as st

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.assignors.fallback import FallbackPriorAssignor
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, BuiltInAssignor, ClientInput

UNLIMITED = 2**63 - 1

LAGS = st.sampled_from([-3, -2, 0, 0, 50, 100, 200, 200, 300, 10**6])


@st.composite
def problems(draw: st.DrawFn, *, tags: bool = True) -> AssignmentProblem:
    ids = draw(st.lists(st.uuids(), min_size=1, max_size=12, unique=True))
    uneven = draw(st.booleans())
    names = draw(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 40)).map(lambda pair: TaskId(*pair)),
            min_size=0,
            max_size=30,
            unique=True,
        )
    )
    stateful = {task: draw(st.sampled_from([0, 100, 200, 1000])) for task in names if draw(st.integers(0, 9)) < 8}
    zones = draw(st.booleans()) and tags
    clients = []
    for id in ids:
        lags = draw(st.dictionaries(st.sampled_from(sorted(stateful)), LAGS)) if stateful else {}
        clients.append(
            ClientInput(
                ProcessId(id),
                draw(st.integers(1, 4)) if uneven else 1,
                tags={"zone": draw(st.sampled_from("abc")), "host": str(id)} if zones else {},
                lags=lags,
                previous_active=sorted(task for task, lag in lags.items() if lag == -2),
                previous_standby=sorted(task for task, lag in lags.items() if lag != -2),
            )
        )
    configs = AssignmentConfigs(
        acceptable_recovery_lag=draw(st.sampled_from([0, 100, 250, UNLIMITED])),
        max_warmup_replicas=draw(st.sampled_from([1, 2, 5, 100])),
        num_standby_replicas=draw(st.integers(0, 4)),
        rack_aware_assignment_tags=("zone", "host") if zones else (),
    )
    return AssignmentProblem(clients, names, stateful, configs)


ASSIGNORS: list[BuiltInAssignor] = [HighAvailabilityAssignor(), LegacyStickyAssignor(), FallbackPriorAssignor()]
