"""HTTP services of an application. They limit connections, time and memory, and refuse requests from other websites."""
