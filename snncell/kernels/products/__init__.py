"""Matrix products: dense by BLAS, event-driven for spikes, with sparse weights, and with delays."""
