"""Scalar functions of formulas: exp, tanh, erf and others, for NumPy, loops and CUDA."""
