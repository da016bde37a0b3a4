"""A consumer group between two rebalances, without brokers, threads and clocks.

Four things stand for what happens between one decision and the next: what a member owns and has to give up
(:mod:`.ownership`), what it works on (:mod:`.member`), how far the copies of a client's state are (:mod:`.copies`), and
whether the group has come to rest (:mod:`.rest`). The simulator adds time, faults and a coordinator, the backtest a
recorded situation, the tests of leader and assignors neither.
"""
