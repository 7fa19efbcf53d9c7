"""Reports on random networks: a few in this test; `benchmarks/report.py` measures error rates on hundreds."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_nets import HEALTHY_APART, HEALTHY_FALL, apart, draw, healthy
from sick_nets import REFUSED, SICKNESSES, sick

import snncell
from snncell import Tensor, errors, nn, ops, plot, testing
from snncell.nn.time.axis import mean_over_time
from snncell.report.findings import KINDS
from snncell.report.probe import examine
from snncell.report.rules import diagnose

SMALL = {"sizes": (6, 14), "steps": (10, 25), "depth": 1, "conv": False}


def found(case):
    """The findings more severe than notes, by kind."""
    return {finding.kind: finding for finding in diagnose(examine(*case.given)[0]) if finding.severity != "note"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(6))
def test_learning_net_gets_no_alarm(seed):
    with testing.unfused():
        case = healthy(seed, **SMALL)
        assert case.falls < HEALTHY_FALL and case.apart < HEALTHY_APART
        said = found(case)
    assert "alarm" not in {finding.severity for finding in said.values()}, f"{case.about}: {said}"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name",
    [
        "saturated in some samples",
        "late, and in some samples",
        "raw inputs, 0 to 255",
        "potentials that explode",
        "a custom neuron that keeps too much",
        "decay out of range",
        "decay learned out of range",
        "time constant out of range",
        "dead in some samples",
        "surrogate too wide",
        "not in the optimiser",
        "labels of one class",
        "activity that grows over epochs",
    ],
)
def test_planted_fault_is_named(name):
    with testing.unfused():
        case, kinds = sick(name, 20, **SMALL)
        said = found(case)
    assert said.keys() & kinds, f"{case.about}: {said}"


class UntilTheEnd(nn.Cell):
    """A net for padded sequences that uses their lengths only in its decoder."""

    def __init__(self, neuron, bias):
        super().__init__()
        self.weights, self.neuron, self.out = nn.Dense(4, 12, bias_init=bias), nn.MultiStep(neuron), nn.Dense(12, 3)

    def construct(self, x, lengths):
        return self.out(mean_over_time(self.neuron(self.weights(x)), lengths, "net"))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("bias", [-0.5, 0.0, 2.0])
@pytest.mark.parametrize("neuron", [nn.IFNode, nn.LIFNode])
@pytest.mark.parametrize("steps", [20, np.array([8, 20, 12, 20, 9, 20])], ids=["of one length", "of several"])
def test_padding_adds_and_hides_no_finding(neuron, bias, steps, rng):
    snncell.set_seed(2)
    net = UntilTheEnd(neuron(), bias)
    lengths = np.broadcast_to(steps, 6).astype(np.int64)
    x = rng.random((20, 6, 4), np.float32) * (np.arange(20)[:, None] < lengths)[:, :, None]
    target, said = np.arange(6) % 3, []
    for padding in (0, 180):
        padded = np.pad(x, ((0, padding), (0, 0), (0, 0)))
        facts = examine(net, (padded, lengths, target), nn.CrossEntropyLoss())[0]
        said.append([(finding.kind, finding.severity, finding.layer) for finding in diagnose(facts)])
    assert said[0] == said[1]


def test_labels_out_of_range_raise_in_loss():
    with testing.unfused():
        case, kinds = sick("labels from 1", 20, **SMALL)
        with pytest.raises(errors.ArgumentError, match=f"^report: the batch with inputs .* {REFUSED}"):
            found(case)
    assert REFUSED in kinds


def test_every_planted_fault_has_existing_kinds():
    assert len(SICKNESSES) >= 30
    assert all(sickness.kinds - {REFUSED} <= KINDS.keys() for sickness in SICKNESSES.values())
    named = frozenset().union(*(sickness.kinds for sickness in SICKNESSES.values()))
    assert KINDS.keys() - named == {"detached reset", "accuracy", "not recorded"}  # remarks, not sicknesses


def test_net_with_constant_output_is_not_healthy():
    """The bias alone lowers its loss; all samples get the same output."""
    case = draw(3, **SMALL)
    last = case.net.dense(1).weight
    last.set_data(Tensor(np.zeros(last.shape, np.float32)))
    with testing.unfused():
        assert apart(case) == pytest.approx(1.0, abs=1e-5)
        assert apart(healthy(3, **SMALL)) < HEALTHY_APART


def test_seed_reproduces_net():
    a, b, other = (draw(seed, **SMALL) for seed in (7, 7, 8))
    with testing.unfused():
        np.testing.assert_array_equal(*(case.net(Tensor(case.x)).asnumpy() for case in (a, b)))
    assert a.about == b.about != other.about


# --- layers that run their time steps themselves ----------------------------------------------------------------------


class SpikeTimes(nn.Cell):
    """Two layers of spike times; weak neurons of the second layer are silent."""

    def __init__(self, weight):
        super().__init__()
        self.first, self.second = nn.EventPropLIF(5, 6), nn.EventPropLIF(6, 3, weight_init=weight)

    def construct(self, x):
        return self.second(self.first(x))[..., 0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("weight", "silent"), [(0.01, True), (3.0, False)])
def test_report_on_spike_times_names_unrecordable_layers_and_silent_neurons(weight, silent, tmp_path):
    times = Tensor(np.linspace(0.0, 20.0, 20, dtype=np.float32).reshape(4, 5))
    labels, entropy = Tensor(np.array([0, 1, 2, 0], np.int32)), nn.CETemporalLoss()
    loss, path = (lambda out, y: entropy.of_times(out, y, 50.0)), tmp_path / "page.html"
    found = plot.report(SpikeTimes(weight), (times, labels), loss, path=path)
    said = {finding.kind: finding for finding in found if finding.kind in ("not recorded", "silent output")}
    assert [f.layer for f in found if f.kind == "not recorded"] == ["first", "second"]
    assert ("silent output" in said) == silent
    assert not any(f.kind == "accuracy" for f in found)  # the largest spike time is no answer
    if silent:
        assert "4 of 4 samples; these have no gradient" in said["silent output"].text


def test_monitor_and_energy_name_unrecordable_layers():
    net = nn.SequentialCell(nn.EventPropLIF(5, 6), nn.CellList([nn.MultiStep(nn.LIFNode())])[0])
    with snncell.monitor(net) as recorded:
        net[0](ops.ones((3, 5)))
        net[1](ops.ones((7, 3, 5)))
    assert recorded.unseen == ("0 (EventPropLIF)",) and "0 (EventPropLIF): not recorded" in repr(recorded)
    reason = r"neurons.* 1 \(not recorded, because they run their time steps themselves: 0 \(EventPropLIF\)\)"
    with pytest.raises(errors.RecordError, match=reason):
        recorded.spikes["0"]
    with pytest.raises(errors.ArgumentError, match=reason):
        snncell.monitor(net, spikes="0")


def test_spikes_of_eprop_are_recorded():
    net = nn.SequentialCell(nn.EProp(5, 6), nn.Dense(6, 4), nn.MultiStep(nn.LIFNode()))
    x = ops.relu(ops.normal((7, 3, 5), 0.0, 3.0))
    with snncell.monitor(net, v=True, above=True, grad=True) as recorded:
        snncell.grad(lambda x: net(x).sum())(x)
    spikes = net[0](x).asnumpy()
    assert recorded.unseen == () and spikes.any()
    np.testing.assert_array_equal(recorded.spikes["0"], spikes)
    assert all("0" not in kind for kind in (recorded.v, recorded.above, recorded.grad))
    assert "products not counted: 0.weight, 0.recurrent" in repr(snncell.monitoring.energy(net, x))
