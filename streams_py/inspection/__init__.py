"""What a Kafka Streams group does, learnt from outside: from the bytes its coordinator keeps. Java groups included.

:mod:`.members` decodes, :mod:`.view` says who has which task, :mod:`.lags` how far behind, :mod:`.election` who leads.
Nothing here joins the group or writes anything.
"""
