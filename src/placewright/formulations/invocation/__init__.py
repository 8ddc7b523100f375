"""The integer program for invocation latency."""
