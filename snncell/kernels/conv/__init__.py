"""Convolutions: direct, Winograd, event-driven and by im2col."""
