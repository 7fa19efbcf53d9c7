"""The tables of the page for those who come from MindSpore: each row with a check that runs.

A row is a function under `@row`: its cells say what MindSpore 2.10 and snncell do, and the function asserts it of
snncell; `tests/test_coming_from_mindspore.py` calls it. A new row goes below the others of its table; then
`python docs/hooks/mindspore.py` writes the tables into the page.
"""

from __future__ import annotations

import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "coming-from" / "mindspore.md"
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

import snncell as ms  # noqa: E402 (from this folder, where the file is run as it is)
from snncell import Parameter, ParameterTuple, Tensor, amp, data, errors, nn, ops, train  # noqa: E402

Check = Callable[[], None]


class Row(NamedTuple):
    """A line of a table, and what has to be true for it."""

    cells: tuple[str, ...]
    check: Check


HEADS = {
    "names": ("MindSpore", "here", "difference"),
    "reverses": ("a reverse of a Cell's own", "MindSpore 2.10", "here"),
    "gradients": ("gradients", "MindSpore 2.10", "here"),
    "parameters": ("Parameters, Cells, Tensors", "MindSpore 2.10", "here"),
    "layers": ("layers and numbers", "MindSpore 2.10", "here"),
}
TABLES: dict[str, list[Row]] = {name: [] for name in HEADS}


def row(table: str, *cells: str) -> Callable[[Check], Check]:
    """Put a row into a table; the function under it is its check."""

    def put(check: Check) -> Check:
        TABLES[table].append(Row(cells, check))
        return check

    return put


def refused(kind: type[Exception], words: str, call: Callable[[], Any]) -> None:
    """Assert that a call raises an error of that kind with those words, a regular expression."""
    error = raised(kind, call)
    assert error is not None, f"no {kind.__name__} with {words!r}"
    assert re.search(words, str(error), re.S), f"{words!r} is not in {error}"


def raised(kind: type[Exception], call: Callable[[], Any]) -> Exception | None:
    """The error of that kind that a call raises, if it does."""
    try:
        call()
    except kind as error:
        return error
    return None


X = Tensor([1.0, -2.0])


def cell_with(bprop: Callable[..., Any], construct: Callable[..., Any] | None = None, **values: Any) -> nn.Cell:
    """A Cell of x and y, or of what `construct` takes, with a reverse."""

    def product(self: Any, x: Tensor, y: Tensor) -> Any:
        return x * y

    kind = type("Mine", (nn.Cell,), {"construct": construct or product, "bprop": bprop})
    cell: nn.Cell = kind()
    for name, value in values.items():
        setattr(cell, name, value)
    return cell


# --- names ------------------------------------------------------------------------------------------------------------


@row(
    "names",
    "`ms.Tensor`, `ms.Parameter`, `ms.ParameterTuple`",
    "the same",
    "a Tensor's values do not change in place; a Parameter's do",
)
def _() -> None:
    p = Parameter(Tensor([1.0, 2.0]), name="p")
    p[0] = 5.0
    assert p.asnumpy().tolist() == [5.0, 2.0] and len(ParameterTuple([p])) == 1

    def write() -> None:
        Tensor([1.0])[0] = 5.0  # type: ignore[index]

    refused(TypeError, "", write)


@row("names", "`nn.Cell`, `construct`, `bprop`, `set_train`, `trainable_params`, hooks", "the same", "")
def _() -> None:
    net = nn.Dense(2, 3).set_train()
    assert net.training and [p.shape for p in net.trainable_params()] == [(3, 2), (3,)]
    seen: list[str] = []
    net.register_forward_hook(lambda cell, inputs, output: seen.append(type(cell).__name__))
    net(ops.ones((1, 2)))
    assert seen == ["Dense"]


@row(
    "names",
    "`nn.SequentialCell`, `nn.CellList`",
    "the same",
    "a plain list of Cells that is an attribute is registered too",
)
def _() -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [nn.Dense(2, 2), nn.Dense(2, 1)]

    assert len(Net().trainable_params()) == 4
    assert len(nn.SequentialCell(nn.Dense(2, 2), nn.ReLU())) == len(nn.CellList([nn.ReLU(), nn.ReLU()])) == 2


@row("names", "`ops.GradOperation`, `ops.grad`, `ms.value_and_grad`, `ops.vjp`", "the same", "")
def _() -> None:
    def square(x: Tensor) -> Tensor:
        return (x * x).sum()

    for gradient in (
        ops.GradOperation()(square)(X),
        ops.grad(square)(X),
        ms.grad(square)(X),
        ms.value_and_grad(square)(X)[1],
    ):
        assert gradient.asnumpy().tolist() == [2.0, -4.0]
    assert ops.vjp(square, X)[0].item() == 5.0


@row(
    "names",
    '`nn.Adam([{"params": ..., "lr": ..., "weight_decay": ..., "grad_centralization": ...}, {"order_params": ...}])`',
    "the same",
    "`lr` is a number or a schedule; `optimiser.rates()` has a rate for each group, `get_lr()` the first",
)
def _() -> None:
    net = nn.Dense(2, 2)
    groups = [{"params": [net.weight], "lr": 0.1, "weight_decay": 0.01}, {"params": [net.bias]}]
    optimiser = nn.Adam([*groups, {"order_params": net.trainable_params()}], learning_rate=0.2)
    assert [round(float(rate), 6) for rate in optimiser.rates()] == [0.1, 0.2]


@row("names", "`ms.jit`, `ms.set_context(mode=ms.GRAPH_MODE)`", "the same", "one set of rules in both modes")
def _() -> None:
    before = ms.get_context("mode")
    try:
        values = []
        for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
            ms.set_context(mode=mode)
            values.append(nn.ReLU()(X).asnumpy().tolist())
    finally:
        ms.set_context(mode=before)
    assert values[0] == values[1] == ms.jit(lambda x: ops.relu(x))(X).asnumpy().tolist()


@row(
    "names",
    "`ms.save_checkpoint`, `ms.load_checkpoint`, `ms.load_param_into_net`",
    "the same",
    "files are safetensors; keys are attribute paths from the Cell that is saved, so wrapping it loses none",
)
def _() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "net.ckpt")
        net = nn.SequentialCell(nn.Dense(2, 2))
        ms.save_checkpoint(net[0], file)
        assert sorted(ms.load_checkpoint(file)) == ["bias", "weight"]
        other = nn.Dense(2, 2)
        ms.load_param_into_net(other, ms.load_checkpoint(file))
    assert (other.weight.asnumpy() == net[0].weight.asnumpy()).all()


@row(
    "names",
    '`amp.auto_mixed_precision(net, "O1")`, `amp.DynamicLossScaler`, `StaticLossScaler`, `all_finite`',
    "the same",
    'what a layer hands on is float32; "O2" and "O3" are not there; `train.fit(loss_scale=...)` has '
    "[all of it](../precision.md#mixed-precision)",
)
def _() -> None:
    net = amp.auto_mixed_precision(nn.Dense(2, 2), "O1")
    assert net(ops.ones((1, 2))).dtype is ms.float32 and amp.all_finite([X]).item()
    refused(ValueError, "O1", lambda: amp.auto_mixed_precision(nn.Dense(2, 2), "O3"))


@row(
    "names",
    "`ops.Sigmoid()(x)` and the other primitive classes",
    "[the ones the guides use](../reference/primitives.md)",
    "`ops.sigmoid(x)` in new code",
)
def _() -> None:
    assert (ops.Sigmoid()(X) == ops.sigmoid(X)).asnumpy().all()


@row(
    "names",
    "`Model(...).train`, `fit`, `eval`, `predict`; `nn.TrainOneStepCell`, `nn.WithLossCell`",
    "the same",
    "[`train.fit`](../training.md) in one call; a step is compiled in both",
)
def _() -> None:
    net = nn.Dense(2, 2)
    pairs = (np.ones((4, 2), np.float32), np.zeros(4, np.int64))
    optimiser = nn.SGD(net.trainable_params(), learning_rate=0.1)
    assert train.fit(net, nn.CrossEntropyLoss(), optimiser, pairs, 1, progress=False).history
    model = ms.Model(net, nn.CrossEntropyLoss(), optimiser, metrics={"accuracy"})
    model.train(1, pairs)
    assert set(model.eval(pairs)) == {"accuracy"} and model.predict(Tensor(pairs[0])).shape == (4, 2)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimiser)
    assert step(Tensor(pairs[0]), Tensor(pairs[1])).shape == ()


@row(
    "names",
    "`from mindspore.train.callback import LossMonitor`",
    "`from snncell.train import LossMonitor`",
    "`mindspore.train` has it too; [which are there](../training.md#in-mindspores-words)",
)
def _() -> None:
    from snncell.train import LossMonitor

    assert issubclass(LossMonitor, ms.Callback)


@row(
    "names",
    "`dataset.GeneratorDataset(...).batch(64)`",
    "`data.batches(x, y, batch_size=64)`, `train.Batches`",
    "NumPy arrays",
)
def _() -> None:
    parts = list(data.batches(np.zeros((5, 2)), np.zeros(5), batch_size=2))
    assert [len(x) for x, _ in parts] == [2, 2, 1] and callable(train.Batches)


@row("names", '`set_context(device_target="Ascend")`', '`"CPU"` or `"GPU"`', "")
def _() -> None:
    refused(ValueError, "CPU.*GPU", lambda: ms.set_context(device_target="Ascend"))


@row(
    "names",
    '`initializer("normal", shape)`',
    "`from snncell.common.initializer import initializer`",
    "same names and numbers",
)
def _() -> None:
    from snncell.common.initializer import Normal, initializer

    assert initializer("zeros", (2, 3)).shape == (2, 3)
    assert abs(float(initializer("normal", (400, 400)).std().item()) - 0.01) < 1e-3
    assert initializer(Normal(0.1), (2,)).dtype is ms.float32


@row(
    "names",
    "`nn.RNN`, `nn.GRU`, `nn.LSTM` and their cells",
    "the same",
    "`hx` left out is zeros; weights are attributes, `weight_ih_l0`, in PyTorch's order; a loop is one kernel",
)
def _() -> None:
    out, (h, c) = nn.LSTM(3, 4, num_layers=2, bidirectional=True)(ops.ones((5, 2, 3)))
    assert (out.shape, h.shape, c.shape) == ((5, 2, 8), (4, 2, 4), (4, 2, 4))
    assert nn.GRU(3, 4).weight_ih_l0.shape == (12, 3)


@row(
    "names",
    "names that snncell has not, such as `nn.MAELoss`",
    "an error that says what to write",
    "PyTorch's names and those of spiking frameworks, too",
)
def _() -> None:
    refused(AttributeError, r"here it is nn\.L1Loss", lambda: nn.MAELoss)
    refused(AttributeError, r"here it is nn\.CellList", lambda: nn.ModuleList)


# --- reverses ---------------------------------------------------------------------------------------------------------


def pulled(cell: nn.Cell, *inputs: Any) -> Any:
    return ms.grad(cell, tuple(range(len(inputs))))(*inputs)


@row("reverses", "`bprop` returns too many gradients", "the rest is dropped", "`BpropError`, with both counts")
def _() -> None:
    cell = cell_with(lambda self, x, y, out, dout: (dout, dout, dout))
    refused(errors.BpropError, "3", lambda: pulled(cell, X, X))


@row("reverses", "`return dx` without the tuple", "right in one mode, an error in the other", "`BpropError` in both")
def _() -> None:
    cell = cell_with(lambda self, x, out, dout: dout, lambda self, x: x * 2)
    refused(errors.BpropError, r"\(d?\w+,\)", lambda: pulled(cell, X))
    refused(errors.BpropError, r"\(d?\w+,\)", lambda: ms.jit(lambda x: ms.grad(cell)(x))(X))


@row(
    "reverses",
    "a gradient of another shape",
    "unchecked in graph mode",
    "summed where the input was broadcast, else `BpropError`",
)
def _() -> None:
    cell = cell_with(lambda self, x, y, out, dout: (dout, ops.ones(3)))
    refused(errors.BpropError, "shape", lambda: pulled(cell, X, X))
    wide = cell_with(lambda self, x, y, out, dout: (dout * y, dout * x))
    assert pulled(wide, X, Tensor([3.0]))[1].asnumpy().tolist() == [-1.0]


@row(
    "reverses",
    "a gradient of another dtype",
    "cast, to integers even",
    "`BpropError`; float to float is cast",
)
def _() -> None:
    whole = cell_with(lambda self, x, y, out, dout: (dout.astype("int64"), dout))
    refused(errors.BpropError, "Int64", lambda: pulled(whole, X, X))
    double = cell_with(lambda self, x, y, out, dout: (dout.astype("float64"), dout))
    assert pulled(double, X, X)[0].dtype is ms.float32


@row(
    "reverses",
    "`(grads, {parameter: gradient})` in another order",
    "values go by order",
    "values go by key; a key too many or missing is a `BpropError`",
)
def _() -> None:
    def construct(self: Any, x: Tensor) -> Tensor:
        return x * self.a + self.b

    def bprop(self: Any, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return (dout * self.a,), {self.b: dout * 7, self.a: dout * 3}

    a, b = Parameter(Tensor(1.0), name="a"), Parameter(Tensor(1.0), name="b")
    cell = cell_with(bprop, construct, a=a, b=b)
    cell.internal_params = [cell.a, cell.b]
    found = ms.grad(cell, None, [a, b])(Tensor(1.0))
    assert [g.item() for g in found] == [3.0, 7.0]


@row(
    "reverses",
    "`bprop` gives no gradient for the Cell's trainable Parameters",
    "zeros",
    "`BpropError`, when they are asked for",
)
def _() -> None:
    w = Parameter(Tensor([2.0]), name="w")
    cell = cell_with(lambda self, x, out, dout: (self.w * dout,), lambda self, x: self.w * x, w=w)
    assert ms.grad(cell)(X).asnumpy().tolist() == [2.0, 2.0]
    refused(errors.BpropError, "internal_params", lambda: ms.grad(cell, None, [w])(X))


@row(
    "reverses",
    "a signature of `bprop` that does not fit `construct`",
    "found when the gradient is taken",
    "found at the first call of the Cell",
)
def _() -> None:
    refused(errors.BpropError, "bprop", lambda: cell_with(lambda self, x, out, dout: (dout,))(X, X))


@row(
    "reverses",
    "`dout` of outputs in nested tuples, or in a tuple of one",
    "flat, or bare",
    "as the output is, whatever its nesting",
)
def _() -> None:
    seen: list[Any] = []

    def bprop(self: Any, x: Tensor, out: Any, dout: Any) -> Any:
        seen.append(dout)
        return (dout[0][0] + dout[0][1],)

    cell = cell_with(bprop, lambda self, x: ((x * 2, x * 3),))
    ms.grad(lambda x: cell(x)[0][0])(X)
    assert isinstance(seen[0], tuple) and len(seen[0]) == 1 and len(seen[0][0]) == 2


@row("reverses", "an input that is no Tensor", "its slot holds anything", "`None` or a zero, else `BpropError`")
def _() -> None:
    def construct(self: Any, x: Tensor, n: int) -> Tensor:
        return x * n

    right = cell_with(lambda self, x, n, out, dout: (dout * n, None), construct)
    assert ms.grad(right)(X, 3).asnumpy().tolist() == [3.0, 3.0]
    wrong = cell_with(lambda self, x, n, out, dout: (dout * n, dout), construct)
    refused(errors.BpropError, "n", lambda: ms.grad(wrong)(X, 3))


@row(
    "reverses",
    "what `construct` keeps on `self` for `bprop`, of a Cell that is used twice",
    "the last value serves both",
    "`self.save_for_bprop(...)` keeps values for each call",
)
def _() -> None:
    def construct(self: Any, x: Tensor) -> Tensor:
        self.save_for_bprop(x * 2)
        return x * x

    cell = cell_with(lambda self, x, out, dout: (dout * self.saved_for_bprop[0],), construct)
    assert ms.grad(lambda x: cell(x) + cell(x * 3))(X).asnumpy().tolist() == [20.0, -40.0]


@row(
    "reverses",
    "`bprop_debug = True`",
    "checks nothing, or breaks",
    "compares the values at every call",
)
def _() -> None:
    cell = cell_with(lambda self, x, out, dout: (dout * 3,), lambda self, x: x * 2, bprop_debug=True)
    refused(errors.SnncellError, "", lambda: ms.grad(cell)(X))


@row("reverses", "an error inside a `bprop`", "comes as it is", "comes as it is, with a note that names the Cell")
def _() -> None:
    def bprop(self: Any, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        raise KeyError("mine")

    error = raised(KeyError, lambda: ms.grad(cell_with(bprop, lambda self, x: x * 2))(X))
    assert error is not None and any("Mine" in note for note in error.__notes__)


@row("reverses", "forward hooks of a Cell with a `bprop`", "are not called", "are called")
def _() -> None:
    seen: list[int] = []
    cell = cell_with(lambda self, x, out, dout: (dout,), lambda self, x: x * 2)
    cell.register_forward_hook(lambda *_: seen.append(1))
    ms.grad(cell)(X)
    assert seen


# --- gradients --------------------------------------------------------------------------------------------------------


@row("gradients", "`grad` of a NumPy array", "zeros", "`GradientError`")
def _() -> None:
    refused(errors.GradientError, "", lambda: ms.grad(lambda x: ops.sum(ops.sin(x)))(np.ones(2, np.float32)))


@row("gradients", "weights that are no Parameters", "an empty tuple, or zeros", "`GradientError`")
def _() -> None:
    refused(errors.SnncellError, "", lambda: ms.grad(lambda x: x.sum(), None, [Tensor([1.0])])(X))


@row("gradients", "gradients with respect to integers or booleans", "no error", "`GradientError`")
def _() -> None:
    refused(errors.GradientError, "Int64", lambda: ms.grad(lambda x: (x * 2.0).sum())(Tensor([1, 2])))


@row("gradients", "NaN in `relu`, `maximum`, `minimum` on a CPU", "becomes a number", "stays NaN")
def _() -> None:
    bad = Tensor([float("nan")])
    for out in (ops.relu(bad), ops.maximum(bad, 0.0), ops.minimum(bad, 0.0), nn.HSwish()(bad), ops.elu(bad)):
        assert np.isnan(out.asnumpy()).all()


@row(
    "gradients",
    "`if x.sum() > 0:` under `jit`",
    "compiled from the source, as far as its grammar goes",
    "an error that names the line and the mend: a function is traced; `ops.where`, `ops.scan`",
)
def _() -> None:
    def branch(x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x

    refused(errors.TraceError, "branch|needs a value", lambda: ms.jit(branch)(X))
    assert branch(X).asnumpy().tolist() == [-1.0, 2.0]


# --- Parameters, Cells, Tensors ---------------------------------------------------------------------------------------


@row(
    "parameters",
    "two Parameters of one name",
    "a checkpoint keeps one",
    "an error, of the optimiser and of the checkpoint",
)
def _() -> None:
    two = [Parameter(Tensor([1.0]), name="w"), Parameter(Tensor([2.0]), name="w")]
    refused(ValueError, "w", lambda: nn.SGD(two, learning_rate=0.1))


@row("parameters", "a plain list or tuple of Cells or Parameters as an attribute", "is not registered", "is registered")
def _() -> None:
    cell = nn.Cell()
    cell.weights = (Parameter(Tensor([1.0]), name="a"), Parameter(Tensor([2.0]), name="b"))
    assert len(cell.trainable_params()) == 2


@row(
    "parameters",
    "a Cell is wrapped in another",
    "its Parameters are renamed, and a checkpoint of before loads nothing",
    "they are renamed alike; checkpoints have the paths from the Cell that is saved, so none is lost",
)
def _() -> None:
    net = nn.Dense(2, 3)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/net.ckpt"
        ms.save_checkpoint(net, file)
        wrapped = nn.SequentialCell(net)
        assert [p.name for p in wrapped.trainable_params()] == ["0.weight", "0.bias"]
        assert ms.load_param_into_net(net, ms.load_checkpoint(file)) == ([], [])


@row("parameters", "`set_data` with another shape", "taken, and shared", "`ValueError`; values are copied")
def _() -> None:
    p = Parameter(Tensor([1.0, 2.0]), name="p")
    refused(ValueError, "shape", lambda: p.set_data(Tensor([1.0, 2.0, 3.0])))


@row("parameters", "`phase` of a Cell that was just made", '"train", though `training` is False', '"predict"')
def _() -> None:
    assert (nn.ReLU().phase, nn.ReLU().training, nn.ReLU().set_train().phase) == ("predict", False, "train")


@row(
    "parameters",
    "a checkpoint that is missing or damaged",
    "`ValueError`",
    "`CheckpointError`, a `ValueError`, that says what is wrong; nothing is half loaded",
)
def _() -> None:
    refused(errors.CheckpointError, "nowhere", lambda: ms.load_checkpoint("nowhere.ckpt"))
    assert issubclass(errors.CheckpointError, ValueError)


# --- layers and numbers -----------------------------------------------------------------------------------------------


@row(
    "layers",
    "`nn.Dropout(0.2)`",
    "drops 80 %: the first argument is `keep_prob`",
    "the same, with an `ArgumentWarning`; `nn.Dropout(p=0.2)` drops 20 %",
)
def _() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused(errors.ArgumentWarning, r"Dropout\(p=0\.8\)", lambda: nn.Dropout(0.2))
        assert nn.Dropout(p=0.2).p == 0.2 and round(nn.Dropout(keep_prob=0.2).p, 6) == 0.8


@row(
    "layers",
    "`nn.Conv2d(1, 8, 3, padding=1)`",
    '`ValueError`: pad_mode is "same"',
    'an error that says what to write, `pad_mode="pad", padding=1`',
)
def _() -> None:
    refused(ValueError, 'Write pad_mode="pad", padding=1', lambda: nn.Conv2d(1, 8, 3, padding=1))


@row(
    "layers",
    "`nn.Softplus`, `ops.softplus`",
    "x where beta x is above 20",
    "the formula everywhere, from which that differs by 2e-9; `threshold=20` for MindSpore's",
)
def _() -> None:
    x = Tensor([21.0], ms.float64)
    assert 0.0 < ops.softplus(x).item() - 21.0 < 2e-9 and ops.softplus(x, threshold=20.0).item() == 21.0


@row("layers", "losses of values whose shapes differ", "are broadcast", "`ShapeError`")
def _() -> None:
    refused(errors.ShapeError, "one shape", lambda: nn.MSELoss()(ops.ones((4, 1)), ops.ones(4)))


# --- the page ---------------------------------------------------------------------------------------------------------


def table(name: str) -> str:
    """A table in Markdown."""
    lines = [HEADS[name], ("---",) * len(HEADS[name]), *(one.cells for one in TABLES[name])]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


def filled(page: str) -> str:
    """The page with its tables, each between `<!-- table: NAME -->` and `<!-- end of table -->`."""

    def replaced(found: re.Match[str]) -> str:
        return f"{found[1]}\n\n{table(found[2])}\n\n<!-- end of table -->"

    return re.sub(r"(<!-- table: (\w+) -->).*?<!-- end of table -->", replaced, page, flags=re.S)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
