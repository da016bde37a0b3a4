"""Commands that inspect, explain or reset a group."""
