"""PyTorch: exported programs, also with a step of training, as graphs."""
