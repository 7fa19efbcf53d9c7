"""Program -> fuse -> plan -> emit; and `jit`. Knows no operation by name, only what an operation declares."""
