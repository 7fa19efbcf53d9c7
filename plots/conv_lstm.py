"""Predictions of the next frame by a convolutional LSTM, and by a convolutional LSTM with spikes as output, after 300
training steps of `examples/conv_lstm.py`. Squares fly diagonally and bounce off the border, so that the last frame
alone does not show where they fly.
"""

from pathlib import Path
from runpy import run_path

from matplotlib.figure import Figure

task = run_path(str(Path(__file__).parents[1] / "examples" / "conv_lstm.py"))


def main() -> Figure:
    figure: Figure = task["draw"](task["compare"](300)[1])
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
