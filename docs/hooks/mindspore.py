"""Tables of differences from MindSpore for the documentation, each row with a check that runs.

A row is a function under `@row`. Its cells describe the behaviour of MindSpore 2.10 and of snncell, and the function
asserts the latter; `tests/mindspore/test_mindspore_guides.py` calls it. Add a new row after the
others of its table, then write the tables into the page by `python docs/hooks/mindspore.py`.
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
    """A row of a table, and the function that checks it."""

    cells: tuple[str, ...]
    check: Check


HEADS = {
    "names": ("MindSpore", "here", "difference"),
    "reverses": ("custom gradients (`bprop`)", "MindSpore 2.10", "here"),
    "gradients": ("gradients", "MindSpore 2.10", "here"),
    "parameters": ("Parameters, Cells, Tensors", "MindSpore 2.10", "here"),
    "training": ("training", "MindSpore 2.10", "here"),
    "layers": ("layers and numbers", "MindSpore 2.10", "here"),
}
TABLES: dict[str, list[Row]] = {name: [] for name in HEADS}


def row(table: str, *cells: str) -> Callable[[Check], Check]:
    """Add a row to a table; the decorated function is its check."""

    def put(check: Check) -> Check:
        TABLES[table].append(Row(cells, check))
        return check

    return put


def refused(kind: type[Exception], words: str, call: Callable[[], Any]) -> None:
    """Assert that a call raises an error of class `kind` whose text matches the regular expression `words`."""
    error = raised(kind, call)
    assert error is not None, f"no {kind.__name__} with {words!r}"
    assert re.search(words, str(error), re.S), f"{words!r} is not in {error}"


def raised(kind: type[Exception], call: Callable[[], Any]) -> Exception | None:
    """Return the error of class `kind` that a call raises, or None."""
    try:
        call()
    except kind as error:
        return error
    return None


X = Tensor([1.0, -2.0])


def cell_with(bprop: Callable[..., Any], construct: Callable[..., Any] | None = None, **values: Any) -> nn.Cell:
    """Return a Cell with this `bprop`; by default its inputs are x and y."""

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
    "a plain list of Cells that you set as an attribute is registered too",
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
    "`lr` is a number or a schedule; `optimiser.rates()` returns a rate for each group, `get_lr()` the first one",
)
def _() -> None:
    net = nn.Dense(2, 2)
    groups = [{"params": [net.weight], "lr": 0.1, "weight_decay": 0.01}, {"params": [net.bias]}]
    optimiser = nn.Adam([*groups, {"order_params": net.trainable_params()}], learning_rate=0.2)
    assert [round(float(rate), 6) for rate in optimiser.rates()] == [0.1, 0.2]


@row(
    "names",
    "`ms.jit`, `ms.set_context(mode=ms.GRAPH_MODE)`",
    "the same",
    "the modes give equal values; GRAPH_MODE traces, so it refuses an `if` on a Tensor's value",
)
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
    "files are safetensors; keys are attribute paths that begin at the saved Cell, so they stay the same "
    "if you later wrap this Cell in another one",
)
def _() -> None:
    with tempfile.TemporaryDirectory() as folder:
        ms.save_checkpoint([{"name": "a", "data": X}], f"{folder}/list.ckpt")
        assert ms.load_checkpoint(f"{folder}/list.ckpt")["a"].tolist() == X.tolist()
        refused(errors.CheckpointError, "one name", lambda: ms.save_checkpoint([{"name": "a", "data": X}] * 2, "no"))
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
    'the output of a layer is float32; "O2" and "O3" are missing; `train.fit(loss_scale=...)` [scales '
    "the loss](../precision.md#mixed-precision) and skips steps with infinite or NaN gradients",
)
def _() -> None:
    net = amp.auto_mixed_precision(nn.Dense(2, 2), "O1")
    assert net(ops.ones((1, 2))).dtype is ms.float32 and amp.all_finite([X]).item()
    refused(ValueError, "O1", lambda: amp.auto_mixed_precision(nn.Dense(2, 2), "O3"))


@row(
    "names",
    "`ops.Sigmoid()(x)` and the other primitive classes",
    "[those that the guides use](../reference/primitives.md)",
    "in new code, write `ops.sigmoid(x)`",
)
def _() -> None:
    assert (ops.Sigmoid()(X) == ops.sigmoid(X)).asnumpy().all()


@row(
    "names",
    "`Model(...).train`, `fit`, `eval`, `predict`; `nn.TrainOneStepCell`, `nn.WithLossCell`",
    "the same",
    "[`train.fit`](../training.md) trains and evaluates in one call; it compiles the training step, as `Model` does",
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
    "also from `snncell.mindspore.train`; see [the list](../training.md#mindspores-model)",
)
def _() -> None:
    from snncell.train import LossMonitor

    assert issubclass(LossMonitor, ms.Callback)


@row(
    "names",
    "`dataset.GeneratorDataset(...).batch(64)`",
    "`data.batches(x, y, batch_size=64)`, `train.Batches`",
    "takes NumPy arrays, Tensors or lists; the batches are Tensors",
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
    "the same names and default arguments",
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
    "without `hx` the states are zeros; weights are attributes (`weight_ih_l0`), in PyTorch's order of gates",
)
def _() -> None:
    out, (h, c) = nn.LSTM(3, 4, num_layers=2, bidirectional=True)(ops.ones((5, 2, 3)))
    assert (out.shape, h.shape, c.shape) == ((5, 2, 8), (4, 2, 4), (4, 2, 4))
    assert nn.GRU(3, 4).weight_ih_l0.shape == (12, 3)


@row(
    "names",
    "names that snncell lacks, such as `nn.MAELoss`",
    "an error that names the replacement",
    "also for names of PyTorch and of spiking frameworks",
)
def _() -> None:
    refused(AttributeError, r"use nn\.L1Loss", lambda: nn.MAELoss)
    refused(AttributeError, r"use nn\.CellList", lambda: nn.ModuleList)


@row(
    "names",
    "`from mindspore.ops import operations as P`, `from mindspore.train.callback import Callback`, "
    "`from mindspore.common.parameter import Parameter` and the like",
    "the same",
    "aliases of `ops`, `train`, ...; the import of a missing name raises an error that names the replacement",
)
def _() -> None:
    from snncell.ops import operations as P  # type: ignore[attr-defined]  # noqa: N812

    assert P is ops
    refused(ImportError, r"use snncell\.jit", lambda: exec("from snncell import jit_class", {}))


@row(
    "names",
    "a subclass of `nn.TrainOneStepCell` with its own `construct`",
    "the same: `self.network`, `self.weights`, `self.grad`, `self.sens`, `ops.depend`",
    "`self.grad_reducer` is missing; for several processes, call `snncell.distributed.mean_gradients`",
)
def _() -> None:
    class Step(nn.TrainOneStepCell):
        def construct(self, *inputs: Any) -> Any:
            loss = self.network(*inputs)
            sens = ops.fill(loss.dtype, loss.shape, self.sens)
            grads = self.grad(self.network, self.weights)(*inputs, sens)
            return ops.depend(loss, self.optimizer(grads))

    ends = []
    for kind in (Step, nn.TrainOneStepCell):
        net = nn.Dense(1, 1, weight_init="ones", has_bias=False)
        step = kind(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
        assert step(ops.ones((1, 1)), ops.zeros((1, 1))).item() == 1.0
        ends.append(net.weight.item())
    assert ends[0] == ends[1] == np.float32(0.8)


@row(
    "names",
    "`super().__init__(learning_rate, params)` in your own optimiser",
    "`super().__init__(params, learning_rate)`",
    "Parameters come first, as in every optimiser; an error tells you if you swap the two",
)
def _() -> None:
    weights = nn.Dense(1, 1).trainable_params()
    refused(errors.ParameterError, "swapped", lambda: nn.Optimizer(0.1, weights))
    assert nn.Optimizer(weights, 0.1).get_lr().item() == 0.1


@row(
    "names",
    "keyword arguments: `x.bmm(mat2=y)`, `x.pow(exponent=2)`, `x.sum(dim=0)`, `p.register_hook(hook_fn=f)`",
    "the same",
    "a method accepts the keyword of NumPy, PyTorch or MindSpore",
)
def _() -> None:
    assert X.pow(exponent=2).tolist() == [1.0, 4.0] and X.sum(dim=0).item() == -1.0
    assert X.add(other=X).tolist() == [2.0, -4.0] and X.matmul(tensor2=X).item() == 5.0
    assert len(X.split(split_size=1)) == 2 and X[None].swapdims(dim0=0, dim1=1).shape == (2, 1)
    Parameter(X, name="p").register_hook(hook_fn=lambda gradient: None).remove()


@row("names", "`jit(..., dynamic=1)`", "compiles for unknown shapes", "`ArgumentError`, because each shape is traced")
def _() -> None:
    refused(errors.ArgumentError, "each shape is traced", lambda: ms.jit(lambda x: x, dynamic=1))


# --- training ---------------------------------------------------------------------------------------------------------


def trained(**settings: Any) -> tuple[nn.Cell, train.Model]:
    net = nn.Dense(1, 1, weight_init="ones", bias_init="zeros")
    return net, train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1, **settings))


PAIRS = [(np.ones((4, 1), np.float32), np.zeros((4, 1), np.float32))] * 3


@row(
    "training",
    "a list of learning rates that is shorter than the training",
    "is read past its end",
    "the last rate stays",
)
def _() -> None:
    sgd, rates = nn.SGD([Parameter(X, name="p")], learning_rate=[0.1, 0.2]), []
    for _ in range(4):
        rates.append(sgd.get_lr().item())
        sgd((ops.zeros(2),))
    assert rates == [0.1, 0.2, 0.2, 0.2]


@row(
    "training",
    "`Model(step)`, if `step` is a `TrainOneStepCell` with its own `construct` or with a `sens`",
    "trains with this Cell",
    "`ArgumentError`, because a Model has its own step; call such a Cell in a loop",
)
def _() -> None:
    class Step(nn.TrainOneStepCell):
        def construct(self, *inputs: Any) -> Any:
            return self.network(*inputs)

    net = nn.Dense(1, 1)
    parts = nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1)
    for step in (Step(*parts), nn.TrainOneStepCell(*parts, sens=2.0)):
        refused(errors.ArgumentError, r"loop, jit\(cell\)", lambda step=step: train.Model(step))  # type: ignore[misc]
    assert train.Model(nn.TrainOneStepCell(*parts)).train(1, PAIRS).history


@row(
    "training",
    "an optimiser with `loss_scale=1024`, and a loss without a scale",
    "steps that are 1024 times too small",
    "`train.fit` raises `ArgumentError`; pass `loss_scale=1024` to `fit` instead",
)
def _() -> None:
    net, _model = trained()
    sgd = nn.SGD(net.trainable_params(), 0.1, loss_scale=1024.0)
    refused(
        errors.ArgumentError,
        "pass it here: loss_scale=1024",
        lambda: train.fit(net, nn.MSELoss(), sgd, PAIRS, 1, progress=False),
    )


@row(
    "training",
    "`run_context.request_stop()` within an epoch",
    "immediately or at the end of the epoch, depending on the mode",
    "the training ends after that batch",
)
def _() -> None:
    steps: list[int] = []

    def stop(run: train.RunContext) -> None:
        steps.append(run.original_args()["cur_step_num"])
        run.request_stop()

    trained()[1].train(4, PAIRS, train.LambdaCallback(on_train_step_end=stop))
    assert steps == [1]


@row(
    "training", "the metric `Loss`", "the mean over batches", "the mean over samples, so a short last batch counts less"
)
def _() -> None:
    net, _model = trained()
    model = train.Model(net, nn.MSELoss(), metrics={"loss"})
    last = (2 * np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32))
    assert abs(model.eval([PAIRS[0], last])["loss"] - (4 * 1.0 + 1 * 4.0) / 5) < 1e-6


@row(
    "training",
    "`EarlyStopping`",
    "by default, `restore_best_weights=False` and `patience=0`",
    "restores the best weights, unless `restore_best_weights=False`; `patience` is required",
)
def _() -> None:
    stopping, net = train.EarlyStopping(patience=1), nn.Dense(1, 1, weight_init="ones")
    stopping.update({"epoch": 1, "test_loss": 0.5}, net)
    net.weight.set_data(ops.zeros((1, 1)))
    assert stopping.update({"epoch": 2, "test_loss": 0.6}, net)
    stopping.restore(net)
    assert net.weight.item() == 1.0
    assert train.EarlyStopping(monitor="eval_loss", patience=1, verbose=True).monitor == "test_loss"


@row(
    "training",
    "`ModelCheckpoint`",
    "writes the training Cell: network, optimiser, step",
    "writes the network; `train.Checkpoint` writes everything that is needed to resume",
)
def _() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trained()[1].train(1, PAIRS, train.ModelCheckpoint("own", folder, train.CheckpointConfig(3)))
        assert sorted(ms.load_checkpoint(f"{folder}/own-1_3.ckpt")) == ["bias", "weight"]


# --- reverses ---------------------------------------------------------------------------------------------------------


def pulled(cell: nn.Cell, *inputs: Any) -> Any:
    return ms.grad(cell, tuple(range(len(inputs))))(*inputs)


@row("reverses", "`bprop` returns too many gradients", "ignores the extra ones", "`BpropError`, with both counts")
def _() -> None:
    cell = cell_with(lambda self, x, y, out, dout: (dout, dout, dout))
    refused(errors.BpropError, "3", lambda: pulled(cell, X, X))


@row("reverses", "`return dx` without the tuple", "works in one mode, an error in the other", "`BpropError` in both")
def _() -> None:
    cell = cell_with(lambda self, x, out, dout: dout, lambda self, x: x * 2)
    refused(errors.BpropError, r"\(d?\w+,\)", lambda: pulled(cell, X))
    refused(errors.BpropError, r"\(d?\w+,\)", lambda: ms.jit(lambda x: ms.grad(cell)(x))(X))


@row(
    "reverses",
    "a gradient of another shape",
    "unchecked in graph mode",
    "summed if the input was broadcast, else `BpropError`",
)
def _() -> None:
    cell = cell_with(lambda self, x, y, out, dout: (dout, ops.ones(3)))
    refused(errors.BpropError, "shape", lambda: pulled(cell, X, X))
    wide = cell_with(lambda self, x, y, out, dout: (dout * y, dout * x))
    assert pulled(wide, X, Tensor([3.0]))[1].asnumpy().tolist() == [-1.0]


@row(
    "reverses",
    "a gradient of another dtype",
    "cast, even to integers",
    "`BpropError`, except that a float dtype is cast to another float dtype",
)
def _() -> None:
    whole = cell_with(lambda self, x, y, out, dout: (dout.astype("int64"), dout))
    refused(errors.BpropError, "Int64", lambda: pulled(whole, X, X))
    double = cell_with(lambda self, x, y, out, dout: (dout.astype("float64"), dout))
    assert pulled(double, X, X)[0].dtype is ms.float32


@row(
    "reverses",
    "`(grads, {parameter: gradient})`, if the dict has another order than the Parameters",
    "gradients are assigned by order",
    "gradients are assigned by key; an extra or a missing key is a `BpropError`",
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
    "`BpropError`, if you ask for these gradients",
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
    "`dout`, if `construct` returns nested tuples or a tuple with one element",
    "for nested tuples, a flat tuple; for a tuple with one element, a Tensor",
    "has the same nesting as the output",
)
def _() -> None:
    seen: list[Any] = []

    def bprop(self: Any, x: Tensor, out: Any, dout: Any) -> Any:
        seen.append(dout)
        return (dout[0][0] + dout[0][1],)

    cell = cell_with(bprop, lambda self, x: ((x * 2, x * 3),))
    ms.grad(lambda x: cell(x)[0][0])(X)
    assert isinstance(seen[0], tuple) and len(seen[0]) == 1 and len(seen[0][0]) == 2


@row(
    "reverses",
    "the gradient that `bprop` returns for an input that is not a Tensor",
    "can be anything",
    "must be `None` or a zero, else `BpropError`",
)
def _() -> None:
    def construct(self: Any, x: Tensor, n: int) -> Tensor:
        return x * n

    right = cell_with(lambda self, x, n, out, dout: (dout * n, None), construct)
    assert ms.grad(right)(X, 3).asnumpy().tolist() == [3.0, 3.0]
    wrong = cell_with(lambda self, x, n, out, dout: (dout * n, dout), construct)
    refused(errors.BpropError, "n", lambda: ms.grad(wrong)(X, 3))


@row(
    "reverses",
    "values that `construct` keeps on `self` for `bprop`, if a Cell is used twice",
    "both calls use the last value",
    "`self.save_for_bprop(...)` keeps the values of each call",
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
    "checks nothing, or fails",
    "in each backward pass, compares the gradients with those of `construct`, or of `primitive` if it exists",
)
def _() -> None:
    cell = cell_with(lambda self, x, out, dout: (dout * 3,), lambda self, x: x * 2, bprop_debug=True)
    refused(errors.SnncellError, "", lambda: ms.grad(cell)(X))


@row(
    "reverses",
    "an error inside a `bprop`",
    "is raised unchanged",
    "is raised unchanged, with a note that names the Cell",
)
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


@row("gradients", "weights that are not Parameters", "an empty tuple, or zeros", "`GradientError`")
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
    "is compiled from the source code, if MindSpore supports its syntax",
    "an error that names the line and the fix, `ops.where` or `ops.scan`, because a function is traced",
)
def _() -> None:
    def branch(x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x

    refused(errors.TraceError, "branch|needs a value", lambda: ms.jit(branch)(X))
    assert branch(X).asnumpy().tolist() == [-1.0, 2.0]


@row("gradients", "`vjp` with an input of integers", "zeros", "`None` for this input")
def _() -> None:
    of_x, of_n = ms.vjp(lambda x, n: x * n, X, Tensor([2, 3]))[1](ops.ones(2))
    assert of_x.tolist() == [2.0, 3.0] and of_n is None


@row("gradients", "the gradient of a norm at 0", "NaN", "0, which is one of its subgradients")
def _() -> None:
    assert ms.grad(lambda x: ops.norm(x))(ops.zeros(2)).tolist() == [0.0, 0.0]


@row(
    "gradients",
    "`GradOperation(get_by_list=True)(net)` without weights",
    "depends on the mode",
    "uses `net.trainable_params()`; `GradientError` if `net` is not a Cell",
)
def _() -> None:
    net, of_weights = nn.Dense(1, 1), ops.GradOperation(get_by_list=True)
    assert [g.tolist() for g in of_weights(net)(ops.ones((1, 1)))] == [[[1.0]], [1.0]]
    refused(errors.GradientError, "weights are missing", lambda: of_weights(lambda x: x))


@row(
    "gradients",
    "a number as `sens`",
    "an error that does not name the argument",
    "`GradientError`, which shows the Tensor to pass",
)
def _() -> None:
    gradient = ops.GradOperation(sens_param=True)(lambda x: x * x)
    refused(errors.GradientError, "ops.full_like", lambda: gradient(X, 2.0))
    refused(TypeError, "", lambda: gradient(X, Tensor([1.0, 1.0], ms.float64)))


# --- Parameters, Cells, Tensors ---------------------------------------------------------------------------------------


@row(
    "parameters",
    "two Parameters with the same name",
    "a checkpoint keeps one of them",
    "an error, from the optimiser and from the checkpoint",
)
def _() -> None:
    two = [Parameter(Tensor([1.0]), name="w"), Parameter(Tensor([2.0]), name="w")]
    refused(ValueError, "w", lambda: nn.SGD(two, learning_rate=0.1))


@row(
    "parameters",
    "a plain list or tuple of Cells or Parameters as an attribute",
    "is not registered",
    "is registered; call `update_parameters_name()` to name elements that you append later",
)
def _() -> None:
    cell = nn.Cell()
    cell.weights = (Parameter(Tensor([1.0]), name="a"), Parameter(Tensor([2.0]), name="b"))
    assert len(cell.trainable_params()) == 2
    net = nn.Cell(parts=[nn.ReLU()])
    net.parts.append(nn.Dense(2, 2, has_bias=False))
    net.update_parameters_name()
    assert [(path, p.name) for path, p in net.parameters_and_names()] == [("parts.1.weight", "parts.1.weight")]


@row(
    "parameters",
    "a Cell is wrapped in another",
    "its Parameters are renamed, and an older checkpoint loads nothing",
    "they are renamed too, but the keys of a checkpoint begin at the saved Cell, so old checkpoints still load",
)
def _() -> None:
    net = nn.Dense(2, 3)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/net.ckpt"
        ms.save_checkpoint(net, file)
        wrapped = nn.SequentialCell(net)
        assert [p.name for p in wrapped.trainable_params()] == ["0.weight", "0.bias"]
        assert ms.load_param_into_net(net, ms.load_checkpoint(file)) == ([], [])


@row(
    "parameters",
    "`set_data` with another shape",
    "is accepted, and the Parameter shares the memory of the new value",
    "`ValueError`; for the same shape, the new value is copied",
)
def _() -> None:
    p = Parameter(Tensor([1.0, 2.0]), name="p")
    refused(ValueError, "shape", lambda: p.set_data(Tensor([1.0, 2.0, 3.0])))


@row(
    "parameters",
    "`net.bias = None`, if it is a Parameter",
    "is accepted, and the next call of `net` fails",
    "`AssignError` with the fix; `net.weight = tensor` sets the data, as in MindSpore",
)
def _() -> None:
    net = nn.Dense(2, 2, has_bias=False)
    refused(errors.AssignError, "has_bias=False", lambda: setattr(nn.Dense(2, 2), "bias", None))
    net.weight = ops.ones((2, 2))
    assert isinstance(net.weight, Parameter) and net.weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    refused(ValueError, "weight.* has shape", lambda: setattr(net, "weight", X))


@row(
    "parameters",
    "`net.to(ms.float16)`",
    "casts Parameters and buffers",
    "`ArgumentError`: `to` is for devices; pass `dtype` to layers, or use `to_float` to compute in fewer bits",
)
def _() -> None:
    refused(errors.ArgumentError, "to_float", lambda: nn.Dense(2, 2).to(ms.float16))
    assert nn.Dense(2, 2).to("CPU").weight.device == "cpu"


@row("parameters", "`phase` of a new Cell", '"train", though `training` is False', '"predict"')
def _() -> None:
    assert (nn.ReLU().phase, nn.ReLU().training, nn.ReLU().set_train().phase) == ("predict", False, "train")


@row(
    "parameters",
    "a checkpoint that is missing or damaged",
    "`ValueError`",
    "`CheckpointError`, a `ValueError`, that describes the problem; nothing is loaded",
)
def _() -> None:
    refused(errors.CheckpointError, "nowhere", lambda: ms.load_checkpoint("nowhere.ckpt"))
    assert issubclass(errors.CheckpointError, ValueError)


@row(
    "parameters",
    "`load_checkpoint(file, net)`",
    "loads the entries that fit",
    "file and network must match exactly; `strict_load=False` loads the entries that fit",
)
def _() -> None:
    with tempfile.TemporaryDirectory() as folder:
        ms.save_checkpoint(nn.Dense(2, 2, "ones"), f"{folder}/a.ckpt", append_dict={"epoch": 3})
        net = nn.Dense(2, 2)
        refused(
            errors.CheckpointError, "not in the Cell: .'epoch'", lambda: ms.load_checkpoint(f"{folder}/a.ckpt", net)
        )
        read = ms.load_checkpoint(f"{folder}/a.ckpt", net, strict_load=False, filter_prefix="bias")
    assert sorted(read) == ["epoch", "weight"] and read["epoch"].item() == 3 and net.weight.asnumpy().all()


@row(
    "parameters",
    "`layer.bias` of a layer with `has_bias=False`",
    "`None`",
    "the same; `bias_ih_l0` and the like of `RNN`, `GRU` and `LSTM` are missing, as in PyTorch",
)
def _() -> None:
    layers = [nn.Dense(2, 2, has_bias=False), nn.Conv2d(1, 1, 1), nn.BiDense(2, 2, 2, has_bias=False)]
    cells = [kind(2, 2, has_bias=False) for kind in (nn.RNNCell, nn.GRUCell, nn.LSTMCell)]
    assert [layer.bias for layer in layers] == [None] * 3
    assert [(cell.bias_ih, cell.bias_hh) for cell in cells] == [(None, None)] * 3
    refused(errors.MissingNameError, "bias_ih_l0", lambda: nn.LSTM(2, 2, has_bias=False).bias_ih_l0)


@row(
    "parameters",
    "the order of the entries that `load_checkpoint(file)` returns",
    "as in the Cell: `weight`, `bias`",
    "by name: `bias`, `weight`, because safetensors keeps no order; `net.parameters_dict()` has the order of the Cell",
)
def _() -> None:
    net = nn.Dense(2, 2)
    with tempfile.TemporaryDirectory() as folder:
        ms.save_checkpoint(net, f"{folder}/a.ckpt")
        assert list(ms.load_checkpoint(f"{folder}/a.ckpt")) == ["bias", "weight"]
    assert list(net.parameters_dict()) == ["weight", "bias"]


@row(
    "parameters",
    "`cell.cell_prefix`",
    "the path of the Cell",
    "an error that names our equivalent, `cell.param_prefix`",
)
def _() -> None:
    net = nn.SequentialCell(nn.Dense(2, 2))
    refused(errors.MissingNameError, "use cell.param_prefix", lambda: net[0].cell_prefix)
    assert net[0].param_prefix == "0"


@row(
    "parameters",
    "two equal names in a `ParameterTuple`",
    "`ValueError`",
    "the same, if both Parameters belong to the same Cell, or both to none",
)
def _() -> None:
    two = [Parameter(X, name="w"), Parameter(X, name="w")]
    refused(ValueError, "'w'", lambda: ParameterTuple(two))
    assert len(ParameterTuple([Parameter(X), Parameter(X)])) == 2 == len(ParameterTuple([two[0], two[0]]))
    refused(TypeError, "", lambda: ParameterTuple([X]))


@row(
    "parameters",
    "a Cell or a Parameter that several Cells share",
    "the last of these Cells names it",
    "the first of these Cells names it; if the first Cell removes it, the next Cell names it",
)
def _() -> None:
    shared, net = nn.Dense(2, 2, has_bias=False), nn.Cell()
    net.one = net.two = shared
    assert [p.name for p in net.get_parameters()] == ["one.weight"]
    del net.one
    assert shared.weight.name == "two.weight"


@row(
    "parameters",
    "a slice of a container, or a second container of the same Cells",
    "renames their Parameters",
    "their names stay; the paths in the slice or the second container begin at 0 again",
)
def _() -> None:
    net = nn.SequentialCell(nn.Dense(2, 2, has_bias=False), nn.Dense(2, 2, has_bias=False))
    ((path, parameter),) = net[1:].parameters_and_names()
    assert (path, parameter.name) == ("0.weight", "1.weight")
    assert [p.name for p in nn.SequentialCell(net[1]).get_parameters()] == ["1.weight"]


@row(
    "parameters",
    "`insert_child_to_cell(name, cell)`",
    "its Parameters keep their names",
    "they get the names that an attribute gives: `name.weight`",
)
def _() -> None:
    net = nn.Cell()
    net.insert_child_to_cell("part", nn.Dense(2, 2))
    assert [p.name for p in net.get_parameters()] == ["part.weight", "part.bias"]


@row("parameters", "keys of `parameters_dict()`", "names of Parameters", "attribute paths, relative to the Cell")
def _() -> None:
    net = nn.Dense(2, 2, has_bias=False)
    net.weight.name = "mine"
    assert list(net.parameters_dict()) == ["weight"] and list(net.state_dict()) == ["weight"]


@row(
    "parameters",
    "`cell.set_grad(False)`",
    "a flag of this Cell only",
    "the Parameters of this Cell and of the Cells inside it get no gradients; `set_grad()` reverts this",
)
def _() -> None:
    net = nn.SequentialCell(nn.Dense(2, 2)).set_grad(False)
    assert not net.trainable_params() and not net.requires_grad
    assert len(net.set_grad().trainable_params()) == 2


@row(
    "parameters",
    "`load_state_dict` with a state that does not fit",
    "loads what fits before it raises",
    "loads all or nothing",
)
def _() -> None:
    net = nn.Dense(2, 2, weight_init="ones")
    state = {"weight": ops.zeros((2, 2)), "bias": ops.zeros(3)}
    refused(errors.CheckpointError, "bias", lambda: net.load_state_dict(state))
    assert net.weight.asnumpy().all()


@row(
    "parameters",
    "`recompute()` of a Cell that sets attributes in `construct`",
    "the attributes are set twice",
    "`ArgumentError`",
)
def _() -> None:
    def construct(self: Any, x: Tensor) -> Tensor:
        self.kept = x
        return x * 2

    kind = type("Keeping", (nn.Cell,), {"construct": construct})
    refused(errors.ArgumentError, "sets an attribute", lambda: ms.grad(kind().recompute())(X))


@row(
    "parameters",
    "`to_float(float16)` of a Cell with a `bprop` and Parameters",
    "casts its inputs",
    "`ArgumentError`, because its `bprop` uses the original Parameters",
)
def _() -> None:
    w = Parameter(X, name="w")
    cell = cell_with(lambda self, x, out, dout: (dout * self.w,), lambda self, x: x * self.w, w=w)
    refused(errors.ArgumentError, "bprop", lambda: cell.to_float(ms.float16))


@row(
    "parameters",
    "`Parameter(initializer(...))`",
    "drawn at `init_data()`",
    "drawn immediately; `init_data()` returns the Parameter itself",
)
def _() -> None:
    from snncell.common.initializer import initializer

    p = Parameter(initializer("ones", (2,)), name="p")
    assert p.asnumpy().tolist() == [1.0, 1.0] and p.init_data() is p


@row(
    "parameters",
    "`Tensor(shape=..., dtype=..., init=...)`",
    "has no values before `init_data()`; without `init`, uninitialised memory",
    "has values immediately; `init` is required",
)
def _() -> None:
    from snncell.common.initializer import One, initializer

    for init in (One(), "ones", initializer("ones", (2,))):
        x = Tensor(shape=(2,), dtype=ms.float32, init=init)
        assert x.tolist() == x.init_data().tolist() == [1.0, 1.0]
    refused(ValueError, "init is missing", lambda: Tensor(shape=(2,), dtype=ms.float32))


@row(
    "parameters",
    "`x.item(0)`, `x.item((0, 1))`, `x.itemset(0, v)`",
    "depends on the version",
    "`item` takes an index, as in NumPy; to write, use a Parameter, `p[0] = v`",
)
def _() -> None:
    assert X.item(1) == X.item((1,)) == -2.0
    refused(AttributeError, "write to a Parameter", lambda: X.itemset(0, 1.0))


@row(
    "parameters", "`Tensor.from_numpy(array)`", "shares the array's memory", "copies, because a Tensor does not change"
)
def _() -> None:
    array = np.ones(2, np.float32)
    tensor = Tensor.from_numpy(array)
    array[:] = 7.0
    assert tensor.tolist() == [1.0, 1.0]


@row("parameters", "`x[i] = v` of a Tensor", "writes", "`AssignError`; only Parameters can be written")
def _() -> None:
    refused(errors.AssignError, "Parameter", lambda: Tensor([1.0]).__setitem__(0, 5.0))  # type: ignore[attr-defined]


@row(
    "parameters", "`x[mask]`, `masked_select` in a graph", "shapes that depend on values", "`TraceError`; works eagerly"
)
def _() -> None:
    refused(errors.TraceError, "needs a value", lambda: ms.jit(lambda x: x[x > 0])(X))
    assert X[X > 0].tolist() == [1.0]


@row(
    "parameters",
    "`x.scatter_add(indices, updates)`",
    "one signature",
    "the same, and `x.scatter_add(axis, index, src)`; both return a new Tensor",
)
def _() -> None:
    x = ops.zeros(2)
    assert x.scatter_add(0, Tensor([0, 0]), Tensor([1.0, 2.0])).tolist() == [3.0, 0.0]
    assert x.scatter_add(Tensor([[1]]), Tensor([5.0])).tolist() == [0.0, 5.0] and x.tolist() == [0.0, 0.0]


@row(
    "parameters", "`ops.max(x, axis)`, `ops.min`", "(values, positions)", "values; `ops.argmax_with_value` returns both"
)
def _() -> None:
    assert ops.max(X).item() == 1.0 and ops.max(X[None], 1).tolist() == [1.0]


@row("parameters", "`ops.sort(x)`", "(values, positions)", "the same; positions are int64")
def _() -> None:
    values, positions = ops.sort(X)
    assert values.tolist() == [-2.0, 1.0] and positions.tolist() == [1, 0] and positions.dtype is ms.int64


@row(
    "parameters",
    "`ops.sum(x, 1, keepdim=True)`",
    "keepdim",
    "keepdims, as in NumPy; the method `x.sum(1, keepdim=True)` accepts both",
)
def _() -> None:
    assert X[None].sum(1, keepdim=True).shape == X[None].sum(1, keepdims=True).shape == (1, 1)
    refused(TypeError, "Did you mean keepdims", lambda: ops.sum(X, keepdim=True))


@row(
    "parameters",
    "a Cell in two attributes: `net.a = net.b = nn.Dense(2, 3)`",
    "its Parameters have the last name",
    "they have the first name, `a.weight`, because `cells_and_names()` finds it first",
)
def _() -> None:
    net = nn.Cell()
    net.a = net.b = nn.Dense(2, 3)
    net.update_parameters_name()
    assert [p.name for p in net.trainable_params()] == ["a.weight", "a.bias"]


@row(
    "parameters",
    "`CellList([3])`, `callbacks=[3]`, `p.requires_grad = 1`",
    "`TypeError`",
    "the same, and the text names the wrong value",
)
def _() -> None:
    refused(TypeError, "element 0", lambda: nn.CellList([3]))
    refused(TypeError, "'a'", lambda: nn.CellDict({"a": 3}))
    refused(TypeError, "train.Callback", lambda: trained()[1].train(1, PAIRS, [3]))
    refused(TypeError, "requires_grad", lambda: setattr(Parameter(X, name="p"), "requires_grad", 1))
    cells = nn.CellList([nn.ReLU()])
    cells += [nn.ReLU()]
    assert len(cells) == 2 and tuple(nn.Cell().internal_params) == ()


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
    'an error that shows the fix, `pad_mode="pad", padding=1`',
)
def _() -> None:
    refused(ValueError, 'Write pad_mode="pad", padding=1', lambda: nn.Conv2d(1, 8, 3, padding=1))


@row(
    "layers",
    "`nn.Softplus`, `ops.softplus`",
    "returns x if beta x is above 20",
    "returns log(1 + exp(beta x)) / beta for every x, at most 2.1e-9 / beta more than MindSpore; if you pass "
    "`threshold=20`, returns x as in MindSpore",
)
def _() -> None:
    x = Tensor([21.0], ms.float64)
    assert 0.0 < ops.softplus(x).item() - 21.0 < 2e-9 and ops.softplus(x, threshold=20.0).item() == 21.0


@row(
    "layers",
    "`nn.LSTM(..., dropout=0.5)`, `GRU`, `RNN` of one layer",
    "a line in the log",
    "an `ArgumentWarning`, because dropout acts between layers and there is only one",
)
def _() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused(errors.ArgumentWarning, "num_layers=2", lambda: nn.LSTM(2, 2, dropout=0.5))
        assert nn.LSTM(2, 2, num_layers=2, dropout=0.5).dropout == 0.5


@row("layers", "losses of values whose shapes differ", "are broadcast", "`ShapeError`")
def _() -> None:
    refused(errors.ShapeError, "the same shape", lambda: nn.MSELoss()(ops.ones((4, 1)), ops.ones(4)))


# --- the page ---------------------------------------------------------------------------------------------------------


def table(name: str) -> str:
    """Return a table as Markdown."""
    lines = [HEADS[name], ("---",) * len(HEADS[name]), *(one.cells for one in TABLES[name])]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


def filled(page: str) -> str:
    """Return the page with its tables filled in, each between `<!-- table: NAME -->` and `<!-- end of table -->`."""

    def replaced(found: re.Match[str]) -> str:
        return f"{found[1]}\n\n{table(found[2])}\n\n<!-- end of table -->"

    return re.sub(r"(<!-- table: (\w+) -->).*?<!-- end of table -->", replaced, page, flags=re.S)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
