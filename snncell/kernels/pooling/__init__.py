"""Pooling on the CPU."""
