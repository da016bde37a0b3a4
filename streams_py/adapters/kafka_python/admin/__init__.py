"""Admin requests for groups and transactions."""
