"""A worker's place in its group: joining, what it holds, and what it must stop or may start (KIP-415, KIP-987)."""
