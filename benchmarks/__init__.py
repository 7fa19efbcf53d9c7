"""Benchmarks against other frameworks (`python -m benchmarks`), and scripts for single subjects."""
