"""Intrinsics: functions that kernels call, each with a Python body and a lowering to LLVM IR."""
