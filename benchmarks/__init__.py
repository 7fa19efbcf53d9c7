"""Benchmarks beside the other frameworks: `python -m benchmarks` (`__main__.py`), and scripts of single subjects."""
