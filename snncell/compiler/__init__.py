"""Compiler: Program -> passes -> schedule -> text -> plan; and `jit`. It knows operations by their properties alone."""

from snncell.base.frames import machinery as _machinery

_machinery(__file__)
