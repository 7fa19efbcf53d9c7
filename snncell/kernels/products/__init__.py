"""Products of matrices: BLAS, and event-driven kernels for spikes."""
