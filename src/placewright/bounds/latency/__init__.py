"""Lower bounds on latency."""
