"""Argument checks by annotations, and suggestions for misspelt names."""
