"""Learning-rate finder: suggested rates, and restoration of net, optimiser and random numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import snncell as ms
from snncell import Tensor, amp, data, nn, ops, plot, train
from snncell.errors import ArgumentError, ShapeError

T = 4
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(T, 48, 6)).astype(np.float32), np.arange(48) % 2

TRACES: list[int] = []


class Net(nn.Cell):
    """A net with all kinds of state that must be restored."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.drop, self.out = nn.Dense(6, 8), nn.Dropout(p=0.3), nn.Dense(8, 2)
        self.norm, self.stream = nn.TimeDistributed(nn.BatchNorm1d(8)), nn.Stateful(nn.MultiStep(nn.LIFNode()))

    def construct(self, x: Tensor) -> Tensor:
        TRACES.append(1)  # in a jitted function once for each trace
        return self.out(self.stream(self.norm(self.drop(self.into(x)))))


OPTIMISERS: dict[str, Callable[[Any], nn.Optimizer]] = {
    "SGD": lambda p: nn.SGD(p, 0.1, momentum=0.9),
    "Adam": lambda p: nn.Adam(p, 0.01),
    "schedule": lambda p: nn.AdamW(p, nn.CosineDecayLR(0.001, 0.01, 50)),
    "groups": lambda p: nn.RMSProp([{"params": p[:2], "lr": 0.1}, {"params": p[2:], "weight_decay": 0.1}], 0.2),
}
DATA: dict[str, Callable[[], Any]] = {
    "Batches": lambda: train.Batches(X, Y, batch_size=12, time_first=True),
    "Loader": lambda: data.Loader([(X[:, n], Y[n]) for n in range(48)], 12, seed=3),
    "list": lambda: [(X[:, :12], Y[:12]), (X[:, 12:24], Y[12:24])],
}


class WithLengths(Net):
    def construct(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().construct(x)


def bits_of(net: Net, optimiser: nn.Optimizer) -> list[Any]:
    parameters = dict.fromkeys([*net.get_parameters(), *optimiser.get_parameters()])
    arrays = [p.asnumpy() for p in parameters] + [s.asnumpy() for s in net.stream.states]
    rates = [str(group.schedule) + repr(group.extend_repr()) for group in optimiser.groups]
    return [*(array.tobytes() for array in arrays), rates, [cell.training for _, cell in net.cells_and_names()]]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("optimiser", "source"), list(itertools.product(OPTIMISERS, DATA)))
def test_rate_finder_restores_everything(optimiser: str, source: str) -> None:
    ms.set_seed(5)
    net, batches = WithLengths(), DATA[source]()
    net.norm.training = True  # some of it apart from the rest
    made = OPTIMISERS[optimiser](net.trainable_params())
    train.fit(net, nn.CECountLoss(), made, batches, 1, progress=False)  # there are moments and states
    net.stream(ops.full((T, 12, 8), 0.3))
    place = batches.state() if source == "Loader" else None
    before, numbers = bits_of(net, made), ms.ops.uniform((3,))
    ms.set_seed(7)
    expected = ms.ops.uniform((3,)).asnumpy()
    ms.set_seed(7)
    scaler = amp.DynamicLossScaler(2.0**100)
    found = train.find_learning_rate(
        net, nn.CECountLoss(), made, batches, 1e-4, 1e2, 12, clip_norm=1.0, clip_value=0.5, loss_scale=scaler
    )
    assert len(found.rates) >= 3 and len(set(found.losses)) > 1
    assert bits_of(net, made) == before
    np.testing.assert_array_equal(ms.ops.uniform((3,)).asnumpy(), expected)
    assert scaler.scale_value.item() == 2.0**100 and scaler.taken.item() == scaler.skipped.item() == 0
    assert place is None or batches.state() == place
    assert numbers.size == 3


def test_rate_finder_restores_everything_after_error() -> None:
    ms.set_seed(5)
    net = Net()
    made = nn.Adam(net.trainable_params(), 0.01)

    class Ends:
        def __iter__(self) -> Any:
            yield X[:, :12], Y[:12]
            yield X[:, 12:24], Y[12:24]
            raise KeyboardInterrupt

    before = bits_of(net, made)
    with pytest.raises(KeyboardInterrupt):
        train.find_learning_rate(net, nn.CECountLoss(), made, Ends(), steps=9)
    assert bits_of(net, made) == before


def test_number_of_traces_is_independent_of_number_of_rates() -> None:
    traced = []
    for steps in (3, 40):
        earlier = len(TRACES)
        net = Net()
        made = nn.SGD([{"params": net.trainable_params()[:1], "lr": 1.0}, {"params": net.trainable_params()[1:]}], 0.5)
        train.find_learning_rate(net, nn.CECountLoss(), made, DATA["Batches"](), 1e-6, 1e-3, steps)
        traced.append(len(TRACES) - earlier)
    assert traced[0] == traced[1] <= 3


@pytest.mark.parametrize("curvature", [0.5, 8.0])
def test_diverging_rates_agree_with_theory(curvature: float) -> None:
    # w <- w - rate curvature w diverges from 2 / curvature on.
    w = ms.Parameter(np.ones(4, np.float32) * 3, name="w")

    class Bowl(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = w

        def construct(self, x: Tensor) -> Tensor:
            return self.w * x.mean()

    def loss(y: Tensor, target: Tensor) -> Tensor:
        return 0.5 * curvature * ops.square(y).sum()

    batches = [(np.ones((2, 1), np.float32), np.zeros(2))]
    found = train.find_learning_rate(Bowl(), loss, nn.SGD([w], 0.1), batches, 1e-4, 1e3, 200)
    np.testing.assert_allclose(found.rates, (1e-4 * 1e7 ** (np.arange(200) / 199))[: len(found.rates)], rtol=1e-12)
    assert found.losses[0] == 18 * curvature
    rate, expected = found.rates, 18 * curvature
    for n in range(1, 40):  # each loss is of the steps before
        expected *= (1 - rate[n - 1] * curvature) ** 2
        assert found.losses[n] == pytest.approx(expected, rel=1e-4)
    rising = found.rates[np.argmin(found.losses)]
    assert found.diverged and rising == pytest.approx(2 / curvature, rel=0.3)
    assert found.suggestion is not None and 1e-3 / curvature < found.suggestion < rising
    np.testing.assert_array_equal(w.asnumpy(), 3.0)


def test_groups_keep_ratio_and_suggestion_is_none_without_descent() -> None:
    first, second = (ms.Parameter(np.ones(1, np.float32), name=name) for name in "ab")

    class Two(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = first, second

        def construct(self, x: Tensor) -> Tensor:
            return -(self.a + self.b) * x.mean()

    def loss(y: Tensor, target: Tensor) -> Tensor:
        return y.sum() + 5.0 * second.sum()

    made = nn.SGD([{"params": [first], "lr": 0.2}, {"params": [second], "lr": nn.CosineDecayLR(0.0, 0.6, 9)}], 0.1)
    found = train.find_learning_rate(Two(), loss, made, [(np.ones((1, 1), np.float32), np.zeros(1))], 0.5, 4.0, 4)
    # loss = -(a + b) + 5 b: the slopes are -1 and 4; the second group's rate is three times the first's.
    steps = np.cumsum(found.rates * (-1.0 + 4.0 * 3.0 * -4.0))
    np.testing.assert_allclose(found.losses, 3.0 + np.concatenate([[0.0], steps[:-1]]), rtol=1e-5)
    flat = train.find_learning_rate(
        Two(), lambda y, t: (y * 0.0).sum(), nn.SGD([first], 0.1), [(np.ones((1, 1), np.float32), np.zeros(1))]
    )
    assert flat.suggestion is None and not flat.diverged and len(flat.rates) == 100


def test_nonfinite_loss_ends_search() -> None:
    w = ms.Parameter(np.ones(1, np.float32), name="w")

    class Root(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = w

        def construct(self, x: Tensor) -> Tensor:
            return ops.sqrt(self.w) * x.mean()

    batches = [(np.ones((1, 1), np.float32), np.zeros(1))]
    found = train.find_learning_rate(Root(), lambda y, t: y.sum(), nn.SGD([w], 0.1), batches, 1e-4, 1e4)
    assert found.diverged and np.isnan(found.losses[-1]) and np.isfinite(found.losses[:-1]).all()
    assert w.item() == 1.0 and found.suggestion is not None
    axes = plot.learning_rate_search(found)
    assert np.isfinite(axes.get_ylim()).all()


def test_invalid_arguments_raise() -> None:
    net, loss = nn.Dense(6, 2), nn.CECountLoss()
    sgd, batches = nn.SGD(net.trainable_params(), 0.1), DATA["list"]()
    find = train.find_learning_rate
    with pytest.raises(ArgumentError, match=r"find_learning_rate: lowest must be below highest, not 1.0 and 0.1"):
        find(net, loss, sgd, batches, 1.0, 0.1)
    with pytest.raises(ArgumentError, match="steps must be at least 3, not 2"):
        find(net, loss, sgd, batches, steps=2)
    with pytest.raises(ArgumentError, match="find_learning_rate: the optimiser trains Parameter"):
        find(nn.Dense(6, 2), loss, sgd, batches)
    with pytest.raises(ArgumentError, match="data give no batch"):
        find(net, loss, sgd, [])
    with pytest.raises(ArgumentError, match="there are no data"):
        find(net, loss, sgd, None)
    frozen = nn.SGD([{"params": [net.weight], "lr": 0.0}, {"params": [net.bias]}], 0.1)
    with pytest.raises(ArgumentError, match="first group is 0"):
        find(net, loss, frozen, batches)


# --- plot -------------------------------------------------------------------------------------------------------------


def test_plot_shows_search_result() -> None:
    rates = np.array([0.1, 1.0, 10.0, 100.0])
    search = train.RateSearch(rates, np.array([2.0, 1.0, 0.5, 90.0]), np.array([1.9, 1.1, 0.6, 50.0]), 1.0, True)
    axes = plot.learning_rate_search(search, title="a title")
    dots, line, suggestion = axes.lines
    np.testing.assert_array_equal(dots.get_ydata(), search.losses)
    np.testing.assert_array_equal(line.get_ydata(), search.smoothed)
    assert list(suggestion.get_xdata()) == [1.0, 1.0] and axes.get_xscale() == "log" and axes.get_title() == "a title"
    low, high = axes.get_ylim()
    assert low < 0.5 and 2.0 < high < 4.0
    none = train.RateSearch(rates, search.losses, search.smoothed, None, True)
    assert len(plot.learning_rate_search(none).lines) == 2
    nothing = train.RateSearch(rates, rates * np.nan, rates * np.nan, None, True)
    with pytest.raises(ArgumentError, match="no step had a finite loss"):
        plot.learning_rate_search(nothing)
    with pytest.raises(ShapeError, match="must have one entry per step"):
        plot.learning_rate_search(train.RateSearch(rates, rates[:2], rates, None, True))
    with pytest.raises(ArgumentError, match=r"takes the result of train\.find_learning_rate"):
        plot.learning_rate_search([1.0])
