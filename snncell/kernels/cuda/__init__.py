"""The CUDA backend: memory, streams and launches on a card or on Numba's simulator, and the build of kernels."""
