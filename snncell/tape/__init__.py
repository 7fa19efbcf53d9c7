"""Automatic differentiation: Tensor, Parameter, Primitive, the tape, tracing, and gradient functions. No operations."""

from snncell.base.frames import machinery

machinery(__file__)
