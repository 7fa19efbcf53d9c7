"""Compiler: Program -> passes -> schedule -> source text -> plan; and `jit`. It knows only properties of operations."""

from snncell.base.frames import machinery as _machinery

_machinery(__file__)
