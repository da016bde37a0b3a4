"""A worker's group membership: joins, assigned jobs, and jobs to start or stop."""
