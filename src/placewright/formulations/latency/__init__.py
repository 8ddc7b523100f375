"""Programs for objective ``latency``: Moirai's, DiviML's, and a model for CP-SAT."""
