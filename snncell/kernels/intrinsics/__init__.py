"""Intrinsics: functions that kernels call, in Python and in the instructions of LLVM."""
