"""Numba: options, compilation, the cache on disk, threads and launches of kernels."""
