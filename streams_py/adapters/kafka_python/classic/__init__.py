"""Membership of a classic consumer group: JoinGroup, SyncGroup and user data."""
