"""A row of the table of high availability as a problem."""

from __future__ import annotations

from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, ClientInput
from tests.support.assignment.scenario_language import ClientRow, lags, number, tasks


def problem(named: list[ClientRow], text: str, settings: str) -> AssignmentProblem:
    stateful_text, _, stateless_text = text.replace("(stateless)", "").partition("; stateless")
    stateful, stateless = tasks(stateful_text), tasks(stateless_text)
    if text.endswith("(stateless)"):
        stateful, stateless = [], stateful
    lag, warmups, standbys = (number(word) for word in settings.split(" / "))
    return AssignmentProblem(
        clients=[ClientInput(c.process_id, c.capacity, lags=lags(c.words, stateful)) for c in named],
        tasks=[*stateful, *stateless],
        end_offset_sums=dict.fromkeys(stateful, 10**6),
        configs=AssignmentConfigs(
            acceptable_recovery_lag=lag, max_warmup_replicas=warmups, num_standby_replicas=standbys
        ),
    )
