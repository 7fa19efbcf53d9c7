"""Loops over arrays and what they need: the Numba policy, the build of generated files, the scalar functions."""
