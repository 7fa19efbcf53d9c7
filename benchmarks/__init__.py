"""Benchmarks against other frameworks: `python -m benchmarks` (`__main__.py`), and scripts for single subjects."""
