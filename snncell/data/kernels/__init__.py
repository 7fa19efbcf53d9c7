"""Kernels of data sets: binning, filters, camera events and sums of waves."""
