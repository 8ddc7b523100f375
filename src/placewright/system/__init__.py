"""What the operating system gives: interrupts, processes, pinning to cores, a Ray cluster."""
