"""MindSpore keeps its initialisers under this name."""
