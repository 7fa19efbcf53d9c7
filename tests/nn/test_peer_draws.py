"""Random settings of every preset against the framework: outputs, states and gradients.

Each preset has a few draws by default. `SNNCELL_DRAWS=150 pytest tests/nn/test_peer_draws.py` runs 150 of each.
"""

from importlib import import_module

import numpy as np
import pytest
from peers import PEERS, STATES, Random
from random_cases import seeds
from test_neurons_like import record_states

from snncell import Tensor, nn, ops
from snncell.nn.neurons.convert import PRESETS

NEEDS = {
    "SpikingJelly": "spikingjelly.activation_based.neuron",
    "snnTorch": "snntorch",
    "Norse": "norse.torch",
    "sinabs": "sinabs.layers",
    "Spyx": "spyx.nn",
}
AWAY = 1e-7  # a spike that such a change of the input moves is at a threshold, where rounding decides


def away_from_thresholds(peer, theirs, random):
    """An input (T, B, N) whose spikes do not depend on rounding, and the run of the framework."""
    for _ in range(20):
        steps = int(random.rng.integers(2, 12))
        scale = random.number(*peer.scale)
        x = random.rng.uniform(-0.3 * scale, scale, (steps, 2, 3))
        weights = random.rng.standard_normal(x.shape)
        run = peer.run(theirs, x, weights)
        near = peer.run(theirs, x * (1.0 + AWAY), weights), peer.run(theirs, x * (1.0 - AWAY), weights)
        if not peer.fires or all(np.array_equal(run.outputs, other.outputs) for other in near):
            return x, weights, run
    raise AssertionError("no input found whose spikes do not hang on rounding")


def peer_named(name, request):
    """The peer of that name; skips with a reason if its framework cannot be imported."""
    framework = name.split()[0]
    if framework != "Spyx":
        request.getfixturevalue("torch")
    try:
        import_module(NEEDS[framework])
    except ImportError as error:
        pytest.skip(f"{framework} cannot be imported, so there is nothing to compare with: {error}")
    return PEERS[name]


def parameter(node, settings, path):
    """The Parameter with a path in the neuron, or the one that was passed."""
    if path.startswith("settings "):
        return settings[path.split()[1]]
    for name in path.split("."):
        node = getattr(node, name)
    return node


def close(found, wanted, what):
    """Check that arrays are equal to 1e-5 of the largest element."""
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * max(1.0, np.abs(wanted).max()), err_msg=what)


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PEERS)
def test_random_settings_equal_the_framework(name, request):
    peer, fired = peer_named(name, request), []
    for draw in seeds(5):
        random = Random(draw)
        settings, theirs = peer.draw(random)
        case = f"{name}, draw {draw}: {settings}"
        x, weights, wanted = away_from_thresholds(peer, theirs, random)
        node = peer.make(settings)
        out, states = record_states(node, x)
        if peer.fires:
            np.testing.assert_allclose(out.asnumpy(), wanted.outputs, rtol=1e-6, atol=0, err_msg=case)
        else:
            close(out.asnumpy(), wanted.outputs, case)
        assert len(states) == len(wanted.states), case
        for number, (mine, state) in enumerate(zip(states, wanted.states, strict=True)):
            close(mine.asnumpy(), state, f"state {number} of {case}")
        learned = [parameter(node, settings, path) for path in wanted.learned]
        assert len(node.trainable_params()) >= len(learned), case

        def loss(x, node=node, weights=weights):
            outputs, after = record_states(node, x)
            return sum([(outputs * Tensor(weights)).sum(), *((v * Tensor(STATES * weights)).sum() for v in after)])

        if learned:
            gradient, found = ops.grad(loss, 0, tuple(learned))(Tensor(x))
            for path, mine in zip(wanted.learned, found, strict=True):
                close(mine.asnumpy(), wanted.learned[path], f"gradient of {path} of {case}")
        else:
            gradient = ops.grad(loss)(Tensor(x))
        close(gradient.asnumpy(), wanted.gradient, f"gradient of {case}")
        fired.append((wanted.outputs != 0).mean())
    assert not peer.fires or 0.02 < np.mean(fired) < 0.9


def test_every_preset_of_an_installed_framework_is_covered():
    """NIR is excluded, because it defines equations without time steps."""
    drawn = {(peer.kind.__name__, peer.framework) for peer in PEERS.values()}
    made = {PRESETS[key] for key in drawn}
    left = {key for key, function in PRESETS.items() if function not in made and not key[1].startswith("nir")}
    assert not left


def recording(node):
    """A layer over time that returns outputs and all states of each step."""

    class Recording(nn.Cell):
        def __init__(self):
            super().__init__()
            self.node = node

        def construct(self, x, *states):
            out, *states = self.node(x, *states)
            return ((out, *states), *states)

        def init_state(self, x):
            return node.init_state(x)

    return nn.MultiStep(Recording())


@pytest.mark.sampled(2)
@pytest.mark.peer
@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["snnTorch Leaky", "Norse LSNN", "Norse LIFRefrac", "sinabs LIF", "sinabs ALIF"])
def test_compiled_presets_with_custom_steps_equal_the_framework(name, request):
    peer, random = peer_named(name, request), Random(3)
    settings, theirs = peer.draw(random)
    x, weights, wanted = away_from_thresholds(peer, theirs, random)
    layer = recording(peer.make(settings))
    np.testing.assert_allclose(layer(Tensor(x))[0].asnumpy(), wanted.outputs, rtol=1e-6, atol=0, err_msg=str(settings))

    def loss(x):
        outputs, *after = layer(x)
        return sum([(outputs * Tensor(weights)).sum(), *((v * Tensor(STATES * weights)).sum() for v in after)])

    gradient = ops.grad(loss)(Tensor(x))
    close(gradient.asnumpy(), wanted.gradient, str(settings))
