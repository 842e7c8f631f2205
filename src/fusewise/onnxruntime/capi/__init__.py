"""Where programs look for ONNX Runtime's errors."""
