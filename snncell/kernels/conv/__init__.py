"""Convolutions: direct, Winograd, depthwise, pointwise, event-driven and by im2col."""
