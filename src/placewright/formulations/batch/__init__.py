"""Programs for a batch of inputs: DiviML's, and a model for CP-SAT."""
