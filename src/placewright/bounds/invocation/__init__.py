"""Lower bounds on invocation latency."""
