"""Tasks as kernels for NVIDIA GPUs: Triton's language as text, written without Triton and without a GPU."""
