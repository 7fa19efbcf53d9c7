"""Kernels by subject, each with its planner (convolutions, products, pooling, EventProp), and their compilation."""
