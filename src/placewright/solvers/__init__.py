"""Solvers as this project uses them: MathOpt and CP-SAT."""
