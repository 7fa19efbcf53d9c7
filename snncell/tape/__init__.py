"""Tensor, Parameter, Primitive, the tape, tracing, and the transformations that take gradients. Knows no operation."""
