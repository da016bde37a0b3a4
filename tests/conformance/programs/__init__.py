"""The recorded programs, written once as topologies."""
