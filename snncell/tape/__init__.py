"""The tape: Tensor, Parameter, Primitive, tracing, functions of gradients. It knows no operation."""

from snncell.base.frames import machinery

machinery(__file__)
