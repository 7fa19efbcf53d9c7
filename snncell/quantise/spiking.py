"""ANN-to-SNN conversion: replace the ReLUs of a trained network by integrate-and-fire neurons (rate coding)."""

from __future__ import annotations

import copy
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from snncell import nn, ops
from snncell.base.arguments.guard import ours
from snncell.base.arguments.kinds import Constant, Count, FloatDtype, Numbers, Probability, Within
from snncell.cell.cell import Cell
from snncell.cell.constants import Ranged
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import POSITIVE, numbers_of, quote_value
from snncell.dtype import float32, float64
from snncell.errors import ArgumentError
from snncell.nn.dataflow import Branches, DataFlow, Sources, add_sources, name_of_cell, refuse_hooks, refuse_replacement
from snncell.nn.layers.norm import BatchStatistics
from snncell.nn.neurons.base import Rounding
from snncell.ops.base import as_tensor
from snncell.quantise.prepare import LAYERS, count_holders, refuse_fold, scale_layer
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

# --- training for conversion ------------------------------------------------------------------------------------------


class _HalfUp(Rounding):
    """floor(clip(x, 0, most) + 1/2), with the derivative of the clip."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.floor(self.primitive(x) + 0.5)


@with_fields
class QCFS(Ranged, Cell):
    """QCFS activation (quantisation clip-floor-shift): a ReLU with a learned limit and few levels, for ANN-to-SNN.

        y = v_threshold / levels floor(clip(x levels / v_threshold, 0, levels) + 1/2)

    An integrate-and-fire neuron that starts at v_threshold / 2 has exactly this mean output after T = levels steps, if
    its input is constant. So train with this activation in place of `nn.ReLU` if the network should be converted by
    `to_spiking` and run for few steps. The gradient goes straight through the floor:

        dy/dx            = 1 for 0 <= x <= v_threshold, else 0
        dy/dv_threshold  = (y - x) / v_threshold for 0 <= x <= v_threshold, 1 above, 0 below

    Inputs: x: any shape.
    Source: Bu, Fang, Ding, Dai, Yu and Huang, "Optimal ANN-SNN Conversion for High-accuracy and Ultra-low-latency
    Spiking Neural Networks", ICLR 2022. The gradient is the one of the authors' code, which clips before the floor.
    Example:
        >>> print(snncell.quantise.QCFS(levels=4, v_threshold=2.0)(Tensor([-1.0, 0.3, 0.8, 5.0])))
        [0.  0.5 1.  2. ]
    """

    levels: Count = field(8, meaning="the number of levels above 0; the network is best near as many time steps")
    v_threshold: Constant = field(
        4.0, meaning="initial limit, a number or an array such as (C, 1, 1); it is learned", keep=False
    )
    dtype: FloatDtype = field(float32, meaning="dtype of the Parameter", keep=False)
    ranges: ClassVar = {"v_threshold": POSITIVE}

    def _complete(self, given: dict[str, Any]) -> None:
        self.v_threshold = Parameter(Tensor(given["v_threshold"], given["dtype"]), name="v_threshold")
        self.round = _HalfUp(self.levels)

    def construct(self, x: Tensor) -> Tensor:
        step = self.v_threshold / float(self.levels)
        out: Tensor = self.round(x / step) * step
        return out

    def extend_repr(self) -> str:
        return f"levels={self.levels}, v_threshold={quote_value(numbers_of(self.v_threshold))}"


# --- conversion -------------------------------------------------------------------------------------------------------


def to_spiking(
    net: Cell,
    samples: Numbers,
    *,
    percentile: Annotated[float, Within(0.0, 100.0, open_low=True)] = 99.9,
    initial: Probability = 0.5,
    per_channel: bool = False,
) -> Cell:
    """Convert a trained ANN to a spiking network (ann2snn): threshold balancing with the activations of some samples.

    Each ReLU becomes `nn.MultiStep(nn.IFNode(...))`. Its threshold is a high percentile of its outputs, or the learned
    limit of a `QCFS`. The neuron adds up its input, subtracts the threshold at each spike, and its spikes have the
    size of the threshold. After T steps of a constant input z, the mean of its output is

        theta / T clip(floor(T z / theta + initial), 0, T)

    for the threshold theta. So it differs from the ReLU, limited to theta, by less than theta / T. In deeper layers the
    input varies over time, which adds an error (unevenness) that also shrinks with T. Other layers keep their weights.

    The result takes sequences (T, B, ...): constant inputs, `snncell.encode.current(x, T)`, or any inputs with the mean
    x, such as rate-coded spikes or event frames. It returns the mean of the last layer's currents over time, an
    approximation of the ANN's output. You can choose T at each call.

    Args:
        net: the ANN over (B, ...). It stays unchanged, because all weights are copied. Supported are Dense,
            convolutions, average and sum pools, padding, Flatten and other layers that only move values, ReLU, ReLU6,
            QCFS, dropout (removed), batch normalisation with its moving statistics (see `fold`), and a softmax at the
            end, which is applied to the mean. Your own Cells may call these in turn and add results (residual blocks).
        samples: inputs of the ANN (B, ...), from the training data; some hundreds are enough.
        percentile: the share of a layer's outputs, in percent, that its threshold covers. 100 is their maximum. Lower
            values give a better resolution, but limit the largest outputs.
        initial: the initial potential as a fraction of the threshold: with 0.5 the number of spikes is rounded to the
            nearest, with 0 down.
        per_channel: True for a threshold for each channel (axis 1) of a ReLU, which often helps with few steps. A
            channel whose percentile is 0 gets the maximum of the layer.
    Returns: A `SequentialCell` of layers over time, with a `Readout`. With branches, it begins with a Cell for them.
    Raises: ArgumentError for a layer without a spiking form, or with outputs that are not finite or 0 for all samples.
    Source: Diehl et al., "Fast-classifying, high-accuracy spiking deep networks through weight and threshold
        balancing", IJCNN 2015 (maximum); Rueckauer et al., "Conversion of continuous-valued deep networks to efficient
        event-driven networks for image classification", Frontiers in Neuroscience 2017 (percentile, reset by
        subtraction); Kim et al., "Spiking-YOLO", AAAI 2020 (per channel); Bu et al., ICLR 2022 (initial potential).
    Example:
        >>> ann = nn.SequentialCell(nn.Dense(3, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> x = ops.uniform((16, 3), 0.0, 1.0)
        >>> snn = snncell.quantise.to_spiking(ann, x)
        >>> bool((ops.abs(snn(snncell.encode.current(x, 1000)) - ann(x)) < 0.01).all())
        True
    """
    _refuse_net(net)
    flow = _Conversion(copy.deepcopy(net).set_train(False))
    out = flow.follow()
    places = {number: place for place, number in enumerate((0, *flow.calls))}
    inputs = [tuple(places[n] for n in call.sources) for call in flow.calls.values()]
    result = tuple(places[n] for n in out)
    values = [as_tensor(samples, "to_spiking", "samples")]
    if not values[0].size:
        raise _error(f"samples must have at least one element, but their shape is {values[0].shape}.")
    cells: list[Cell] = []
    calls = flow.calls.values()
    # Copies, because a Cell has a name in the ANN. One deepcopy keeps a Cell that is called twice a single Cell.
    copies = copy.deepcopy([call.cell for call in calls])
    for cell, call, before in zip(copies, calls, inputs, strict=True):
        values.append(cell(add_sources(values, before)))
        flow.refuse_axis(call.cell, call.path, values[-1])
        cells.append(_over_time(cell, call.path, values[-1], initial, percentile, per_channel))
    if [*inputs, result] != [(place,) for place in range(len(cells) + 1)]:
        cells = [Branches(cells, inputs, result)]
    return nn.SequentialCell(*cells, nn.Readout("mean"), *(() if flow.softmax is None else (flow.softmax.cell,)))


def _over_time(cell: Cell, path: str, out: Tensor, initial: float, percentile: float, per_channel: bool) -> Cell:
    """A layer of the ANN as a layer over time: an IFNode for a ReLU, else the same layer."""
    if isinstance(cell, RECTIFIERS):
        theta = np.asarray(_threshold(cell, path, out, percentile, per_channel))
        dtype = float64 if out.dtype is float64 else float32
        # Parameters, so that checkpoints contain the thresholds; not trained.
        limit, start = (Parameter(Tensor(x, dtype), requires_grad=False) for x in (theta, initial * theta))
        return nn.MultiStep(nn.IFNode(v_threshold=limit, v_reset=start, compare=">="))
    return cell if isinstance(cell, nn.Dense) and cell.axes is None else nn.TimeDistributed(cell)


def _threshold(cell: Any, path: str, out: Tensor, percentile: float, per_channel: bool) -> Any:
    """The threshold for an activation with these outputs."""
    if isinstance(cell, QCFS):
        return float(cell.v_threshold.item()) if cell.v_threshold.size == 1 else cell.v_threshold.asnumpy()
    values = out.astype(float32).asnumpy()
    most, name = float(values.max()), name_of_cell(path, cell)
    if not np.isfinite(most):
        raise _error(f"{name} returns {most} for some of the samples. Check the samples and the weights.")
    if most == 0.0:
        raise _error(
            f"{name} returns 0 for all samples (a dead layer), so it has no threshold. Pass samples of the training "
            f"data, on the same scale as in training, or train the network again with a lower learning rate."
        )
    axes = tuple(axis for axis in range(out.ndim) if axis != 1) if per_channel else None
    theta = np.quantile(values, percentile / 100.0, axes)
    if not theta.any():
        raise _error(
            f"{name} is positive for {100.0 * (values > 0).mean():.2g} % of its outputs, so percentile={percentile:g} "
            f"of them is 0. Pass a higher one; percentile=100 is the maximum, {most:.3g}."
        )
    theta = np.where(theta > 0.0, theta, most)
    theta = np.minimum(theta, 6.0) if isinstance(cell, nn.ReLU6) else theta
    return theta.reshape((-1, *(1,) * (out.ndim - 2))) if per_channel else float(theta)


# --- the calls of the ANN ---------------------------------------------------------------------------------------------

RECTIFIERS = (nn.ReLU, nn.ReLU6, QCFS)
REMOVED = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d)
LINEAR = (
    *(nn.Dense, nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv2dTranspose, nn.Flatten, nn.Unflatten),
    *(nn.AvgPool1d, nn.AvgPool2d, nn.SumPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d),
    *(nn.Pad, nn.ZeroPad2d, nn.ConstantPad1d, nn.ConstantPad2d, nn.ReflectionPad1d, nn.ReflectionPad2d),
    *(nn.ReplicationPad1d, nn.ReplicationPad2d, nn.Upsample, nn.PixelShuffle, nn.PixelUnshuffle),
)  # or affine: what they do to the mean over time is the mean over time of what they do
MAXIMA = (nn.MaxPool1d, nn.MaxPool2d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d)
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d)
OVER_TIME = (nn.MultiStep, nn.Recurrent, nn.Stateful, nn.Neuron, nn.RNN, nn.LSTM, nn.GRU)
REASONS: tuple[tuple[Any, str, str], ...] = (
    (MAXIMA, "the maximum of spikes is not the maximum of their rates", "train with nn.AvgPool2d instead"),
    (NORMS, "it divides by statistics of each sample", "train with batch normalisation, which is folded, instead"),
    (OVER_TIME, "it has a time axis already", "pass an ANN over (B, ...)"),
    ((nn.Softmax,), "it is not at the end", "only there it can be applied to the mean over time"),
    (
        (BatchStatistics,),
        "it does not directly follow a Dense, Conv1d or Conv2d, into which it could be folded",
        "put it there, or remove it",
    ),
)
OTHERWISE = ["only linear layers and limited ReLUs do", "train with nn.ReLU or quantise.QCFS instead"]


_LAYER = "create the layer {0} in __init__ and call it in construct"
FIXES = {
    **dict.fromkeys(("relu", "relu6"), _LAYER.format("nn.ReLU() or quantise.QCFS()")),
    "flatten": _LAYER.format("nn.Flatten()"),
    **dict.fromkeys(("reshape", "view"), _LAYER.format("nn.Flatten() or nn.Unflatten(axis, shape)")),
    **dict.fromkeys(("concat", "cat"), "add the results of two layers: Dense(concat(a, b)) is Dense_a(a) + Dense_b(b)"),
    **dict.fromkeys(("avg_pool2d", "mean"), _LAYER.format("nn.AvgPool2d(...)")),
    "pad": _LAYER.format("nn.Pad(...)"),
    **dict.fromkeys(("softmax", "log_softmax"), "call a layer nn.Softmax() at the end of the network"),
}


class _AnnCall(NamedTuple):
    cell: Any
    sources: Sources
    path: str


SOFTMAX = -1  # the source that stands for the output of a softmax at the end


class _Conversion(DataFlow):
    """The calls of an ANN, numbered from 1. A source of values is the number of a call, or 0 for the input."""

    def __init__(self, net: Cell) -> None:
        super().__init__(net, _error, "that layers cannot express (it may call layers, and add their results)", axes=1)
        self.fixes = FIXES
        self.holders = count_holders(net)
        self.calls: dict[int, _AnnCall] = {}
        self.folded: dict[int, _AnnCall] = {}  # calls whose output exists only with the normalisation after it
        self.norms: list[tuple[Any, Any]] = []
        self.softmax: _AnnCall | None = None

    def place(self, cell: Any, kind: type, path: str, sources: Sources) -> Sources | None:
        """Note a Cell that can be converted, or fold a batch normalisation."""
        if not ours(kind) or kind is nn.SequentialCell:
            return None
        refuse_replacement(cell, path, _error, "so its spiking form would compute something else")
        self._refuse_sources(sources)
        if kind in REMOVED:
            return sources
        if issubclass(kind, BatchStatistics):
            return self._fold(cell, path, sources)
        if kind in (nn.Softmax, nn.LogSoftmax):
            if self.softmax is not None:
                raise self.unknown(self.softmax.cell, self.softmax.path)
            self.softmax = _AnnCall(cell, sources, path)
            return (SOFTMAX,)
        if kind not in (*RECTIFIERS, *LINEAR):
            return None
        if getattr(cell, "activation", None) is not None:
            raise _error(
                f"{name_of_cell(path, cell)} has an activation. Make it a Cell of its own, for example "
                f"nn.SequentialCell(nn.Dense(...), nn.ReLU())."
            )
        if any(cell is call.cell for call in self.folded.values()):
            raise _used_twice(cell, path)
        return self._add(_AnnCall(cell, sources, path))

    def _add(self, call: _AnnCall) -> Sources:
        number = 1 + len(self.calls) + len(self.folded)
        self.calls[number] = call
        return (number,)

    def _fold(self, norm: Any, path: str, sources: Sources) -> Sources:
        """Fold a normalisation into the layer before it, whose call gets a new number."""
        before = self.calls.get(sources[0]) if len(sources) == 1 else None
        if before is None or not isinstance(before.cell, LAYERS):
            raise self.unknown(norm, path)
        refuse_fold(norm, before.cell, [(before.path, before.cell), (path, norm)], self.holders)
        self.folded[sources[0]] = self.calls.pop(sources[0])
        if any(sources[0] in call.sources or call.cell is before.cell for call in self.calls.values()):
            raise _used_twice(before.cell, before.path)
        self.norms.append((before.cell, norm))
        return self._add(before)

    def _refuse_sources(self, sources: Sources) -> None:
        for number in sources:
            if number in self.folded:
                raise _used_twice(self.folded[number].cell, self.folded[number].path)
            if number == SOFTMAX and self.softmax is not None:
                raise self.unknown(self.softmax.cell, self.softmax.path)

    def follow(self) -> Sources:
        """Run the network and fold normalisations; return the sources of its output, or of its softmax at the end."""
        out = self.run((0,))
        for layer, norm in self.norms:
            scale_layer(layer, norm)
        if not any(isinstance(call.cell, RECTIFIERS) for call in self.calls.values()):
            raise _error(f"{type(self.net).__name__} calls no ReLU, ReLU6 or QCFS, so there is nothing to convert.")
        if self.softmax is not None and out == (SOFTMAX,):
            return self.softmax.sources
        self._refuse_sources(out)
        self.softmax = None  # its output is not used
        return out

    def refuse_axis(self, layer: Any, path: str, out: Tensor) -> None:
        """Raise for a folded normalisation over another axis than that of the outputs of a Dense, which is the last."""
        if isinstance(layer, nn.Dense) and out.ndim > 2 and any(layer is folded for folded, _ in self.norms):
            raise _error(
                f"{name_of_cell(path, layer)} returns {out.shape}, with its outputs on the last axis, but the batch "
                f"normalisation after it normalises axis 1, so it cannot be folded. Flatten the input to (B, N) first."
            )

    def unknown(self, cell: Any, path: str) -> Exception:
        reason, fix = next((words for kinds, *words in REASONS if isinstance(cell, kinds)), OTHERWISE)
        return _error(f"{name_of_cell(path, cell)} has no spiking form, because {reason}; {fix}.")


def _refuse_net(net: Cell) -> None:
    refuse_hooks(net, _error, "and would be lost")
    for path, cell in net.cells_and_names():
        if cell.quantisers is not None:
            raise _error(
                f"{name_of_cell(path, cell)} is prepared for quantisation. Convert the network first, and prepare the "
                f"result."
            )
        if isinstance(cell, nn.TimeDistributed):
            raise _error(f"{name_of_cell(path, cell)} takes a time axis. Pass an ANN over (B, ...), without it.")


def _used_twice(layer: Cell, path: str) -> ArgumentError:
    return _error(
        f"{name_of_cell(path, layer)} is used with the batch normalisation after it and without, or twice, so the "
        f"normalisation cannot be folded into its weights. Make a separate layer for each use."
    )


def _error(text: str) -> ArgumentError:
    return ArgumentError(f"to_spiking: {text}")
