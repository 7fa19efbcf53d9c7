"""Program -> passes -> schedule -> text -> plan; and `jit`. Knows no operation by name, only what it declares."""
