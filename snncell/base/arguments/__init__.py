"""The check of arguments by their annotations, and suggestions for misspelt names."""
