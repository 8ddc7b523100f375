"""What the operating system gives: interrupts, worker processes, machines of a Ray cluster."""
