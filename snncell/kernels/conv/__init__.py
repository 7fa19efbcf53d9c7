"""Convolutions: direct, Winograd, depthwise, event-driven and by im2col."""
