"""Lower bounds: what no plan can beat, and the argument that proves it."""
