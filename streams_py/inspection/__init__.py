"""The state of a Kafka Streams group, Java or Python, as seen from outside the group.

:mod:`.members` decodes the bytes that the coordinator keeps. :mod:`.view` finds the member of each task,
:mod:`.lags` the lags, and :mod:`.election` the leader. This package never joins a group and never writes anything.
"""
