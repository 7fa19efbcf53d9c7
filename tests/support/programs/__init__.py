"""Random programs, each rendered to snncell and to PyTorch, whose values and gradients are compared.

A program is a small syntax tree (`syntax.py`), made from a seed (`generate.py`, from the operations of `operations.py`)
and written out twice (`render.py`). `forms.py` says how it is run: eagerly, jitted, its gradient, the gradient of what
is jitted, second order, a training step. `compare.py` runs a program in all forms, and `shrink.py` makes what fails
small. `python -m programs` is the command; see CONTRIBUTING.
"""
