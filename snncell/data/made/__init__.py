"""Synthetic data sets, for tests, tutorials, and benchmark tasks of papers."""
