"""The CUDA side: memory and streams of a card (or of Numba's simulator of one), and the build of kernels for it."""
