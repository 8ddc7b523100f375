"""ONNX models as programs to measure, through ONNX Runtime."""
