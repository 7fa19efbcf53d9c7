"""Short-term depression makes a neuron respond to relative changes of rates (Abbott, Varela, Sen and Nelson 1997).

Two groups of presynaptic neurons double their rates after a second: the slow ones from 10 to 20 Hz, the fast ones from
50 to 100 Hz. With constant synapses, a conductance-based neuron responds to the fast group and hardly to the slow one.
With depressing synapses, the responses to both changes have about the same size, and they are short.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from snncell import Tensor, nn

STEPS, CHANGE, SYNAPSES, TRIALS = 2000, 1000, 400, 20  # steps of 1 ms


def presynaptic(rng, rate):
    """Poisson spikes (T, B, N); their rate in Hz doubles at CHANGE."""
    rates = np.full((STEPS, 1, 1), rate / 1000.0)
    rates[CHANGE:] *= 2.0
    return Tensor((rng.random((STEPS, TRIALS, SYNAPSES)) < rates).astype(np.float32))


def conductance(synapse, spikes, weight):
    """The summed strengths of all synapses, (T, B, 1)."""
    strengths = spikes if synapse is None else nn.MultiStep(synapse)(spikes)
    return strengths.sum(2, keepdims=True) * weight


def main(picture: str | None = None):
    """Return the rise of the drive in the first 30 ms after the change, and the spikes of a neuron in this time."""
    synapses = {
        "constant": (None, 0.004),
        "depressing": (nn.ShortTermPlasticity(U=0.6, tau_f=1.0, tau_d=400.0), 0.06),
    }
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.4), layout="constrained")
    found = {}
    for ax, (name, (synapse, weight)) in zip(axes, synapses.items(), strict=True):
        for group, rate in (("slow", 10.0), ("fast", 50.0)):
            spikes = presynaptic(np.random.default_rng(0), rate)
            drive = conductance(synapse, spikes, weight)
            before = drive[CHANGE - 500 : CHANGE].mean().item()
            rise = drive[CHANGE : CHANGE + 30].mean().item() - before
            fired = nn.MultiStep(nn.CobaLIFNode())(drive)[CHANGE : CHANGE + 30].sum().item() / TRIALS
            found[name, group] = rise, fired
            print(f"{name} synapses, {group} group: drive {before:.3f}, rise {rise:.3f}, {fired:.2f} spikes in 30 ms")
            smooth = np.convolve(drive.asnumpy().mean((1, 2)), np.full(20, 0.05), "valid")
            ax.plot(np.arange(400, len(smooth)), smooth[400:], label=f"{rate:.0f} to {2 * rate:.0f} Hz")
        ax.set(title=f"{name} synapses", xlabel="time (ms)", ylabel="drive")
        ax.legend()
    if picture is not None:
        figure.savefig(picture, dpi=150)
    return found


if __name__ == "__main__":
    main(picture=sys.argv[1] if len(sys.argv) > 1 else None)
