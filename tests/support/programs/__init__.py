"""Random programs (fuzzing): rendered for snncell and for PyTorch, with values and gradients that must agree.

A program is a small syntax tree (`syntax.py`). `generate.py` makes it from a seed and the operations of
`operations.py`, and `render.py` writes it as text for both libraries. `forms.py` runs it in many forms: eagerly,
jitted, as a gradient, as the gradient of a jitted function, as a second-order gradient, and as a training step.
`compare.py` compares all forms, and `shrink.py` reduces a failing program. The command is `python -m programs`; see
CONTRIBUTING.
"""
