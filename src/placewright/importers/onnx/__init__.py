"""ONNX files: shapes, folding, costs of operators."""
