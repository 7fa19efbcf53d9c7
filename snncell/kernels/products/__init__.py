"""Matrix products: BLAS for dense operands, event-driven kernels for spikes."""
