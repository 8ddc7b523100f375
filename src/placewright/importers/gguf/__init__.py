"""GGUF files (llama.cpp) as graphs, from their headers alone: no tensor's data is read."""
