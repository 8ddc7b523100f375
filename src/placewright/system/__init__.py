"""What the operating system gives: interrupts, worker processes, pinning to cores, machines of a Ray cluster."""
