"""Program -> passes -> schedule -> text -> plan; and `jit`. Knows no operation by name, only what it declares."""

from snncell.tape.frames import machinery as _machinery

_machinery(__file__)
