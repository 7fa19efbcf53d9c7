"""Three surrogates. All fire above the threshold, and the backward pass of each is the derivative of a smooth
primitive. The derivative of the triangle is 0 beyond one unit from the threshold. That of the arc tangent is positive
everywhere.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from snncell import plot, surrogate


def main() -> Figure:
    figure, axes = plt.subplots(1, 3, figsize=(7, 2.5), sharey=True, layout="constrained")
    for ax, each in zip(axes, (surrogate.Triangle(), surrogate.ATan(), surrogate.relusigmoid()), strict=True):
        plot.surrogate(each, ax)
    for ax in axes[1:]:
        ax.set_ylabel("")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
