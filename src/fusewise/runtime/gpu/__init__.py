"""What has effects for a GPU: Triton's compiler, drivers (NVIDIA's, and one of NumPy's memory), programs that run."""
