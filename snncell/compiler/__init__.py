"""Compiler: Program -> passes -> schedule -> text -> plan; and `jit`. It knows operations by their properties alone."""

from snncell.tape.frames import machinery as _machinery

_machinery(__file__)
