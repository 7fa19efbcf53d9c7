"""The pipeline from a Python function to results. `jit` and `MultiStep` trace the function to a Program, passes rewrite
it, and a plan replays the kernels. In eager mode operations run immediately, and a tape records them for the gradients.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

BOXES = {  # text: (column, row, shade)
    "Your function\nCells, operations": (0, 0.5, "0.95"),
    "Tape\nan entry per operation": (1, 1, "0.95"),
    "Backward pass\ncalls each bprop": (2, 1, "0.95"),
    "Program\ninstructions, shapes": (1, 0, "0.85"),
    "Passes\nsimplify, fuse, hoist": (2, 0, "0.85"),
    "Plan of kernels\nNumba, BLAS, CUDA": (3, 0, "0.85"),
    "Results\nvalues, gradients": (3, 1, "0.95"),
}
ARROWS = {  # label: (from, to, place of the label)
    "eager": ((0.2, 0.74), (0.6, 0.95), (0.28, 0.92)),
    "traced": ((0.2, 0.26), (0.6, 0.05), (0.28, 0.08)),
    "under jit": ((1.75, 0.76), (1.25, 0.24), (1.75, 0.5)),
    "replayed": ((3, 0.24), (3, 0.76), (3.22, 0.5)),
}


def main() -> Figure:
    figure, ax = plt.subplots(figsize=(7, 2.2), layout="constrained")
    for text, (x, y, shade) in BOXES.items():
        style = {"boxstyle": "round,pad=0,rounding_size=0.05", "facecolor": shade, "edgecolor": "0.3"}
        ax.add_patch(FancyBboxPatch((x - 0.4, y - 0.24), 0.8, 0.48, **style))
        ax.text(x, y, text, ha="center", va="center", fontsize=7.5)
    for x, y in ((1, 1), (2, 1), (1, 0), (2, 0)):
        ax.annotate("", (x + 0.6, y), (x + 0.4, y), arrowprops={"arrowstyle": "->", "shrinkA": 1, "shrinkB": 1})
    for label, (start, end, place) in ARROWS.items():
        ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "shrinkA": 1, "shrinkB": 1})
        ax.text(*place, label, ha="center", va="center", fontsize=7, style="italic")
    ax.set(xlim=(-0.42, 3.45), ylim=(-0.28, 1.28))
    ax.set_axis_off()
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
