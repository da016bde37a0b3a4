"""A model of a consumer group between two rebalances, without brokers, threads and clocks.

Four parts model what happens between one decision of the leader and the next:

* :mod:`.ownership`: the partitions that a member owns and has to give up,
* :mod:`.member`: the tasks that a member works on,
* :mod:`.copies`: how far a client's copies of task state are restored,
* :mod:`.rest`: whether the group stops rebalancing.

The simulator adds time, faults and a coordinator. The backtest adds a recorded situation. The tests of the leader and
of the assignors use the model as it stands.
"""
