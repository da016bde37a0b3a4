"""HTTP services beside an application: bounded in connections, time and memory, and deaf to pages of other sites."""
