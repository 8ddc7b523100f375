"""llama.cpp: its arguments, its RPC servers on other hosts, and how it counts memory."""
