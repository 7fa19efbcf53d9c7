"""monitor: record the spikes, potentials and gradients of a network's neurons while it runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import AtLeastOne
from snncell.base.arguments.names import plugin
from snncell.base.arguments.shown import cut_lines, titled_table
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, RecordError
from snncell.monitoring.layers import Neurons, gives_spikes, spike_function_of, spike_functions
from snncell.monitoring.recorder import KINDS, Array, RecordedCall, Recorder, missing
from snncell.tape.state import CHECKING, settings


class Recorded(Mapping[str, Array]):
    """A recorded quantity: a mapping from layers to arrays (T, B, ...)."""

    def __init__(self, monitor: Monitor, kind: str, call: RecordedCall) -> None:
        self._monitor, self._kind, self._call = monitor, kind, call
        by_name = call.series.get(kind, {})  # gradients arrive from the last layer to the first
        self._series = {name: by_name[name] for name in monitor._recorder.cells if name in by_name}

    def __getitem__(self, name: Any) -> Array:
        layer = self._monitor._resolve(name)
        if layer not in self._series:
            raise RecordError(f"monitor: {missing(self._kind, name)} {self._monitor._why(layer, self._kind)}")
        array = self._series[layer].array(layer)
        there = self.before_end(layer) if self._kind == "spikes" else None
        if there is None:
            return array
        return np.where(there.reshape(*there.shape, *(1,) * (array.ndim - 2)), array, array.dtype.type(0))

    def before_end(self, name: Any) -> Array | None:
        """A mask (T, B) of the steps before the end of each sample; None if no Cell around the layer got `lengths`."""
        return self._monitor._recorder.step_mask(self._call, self._monitor._resolve(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        parts = [f"{name}: {self[name].dtype}{list(self[name].shape)}" for name in self]
        return f"{self._kind} of {{{', '.join(parts)}}}"


class Monitor:
    """Record spikes, potentials and gradients of a network while it runs: `with snncell.monitor(net) as m:`.

    Use it to see why a network does not learn, how often its neurons fire, or how much it costs. A monitor works in
    eager mode, under `jit`, in graph mode and during `train.fit`, without an effect on results. A loop over time is
    still one kernel, which also returns the records. The first call with a monitor is traced and compiled again.

    A layer is a Cell of neurons at one place of the network. It can be inside `nn.MultiStep`, `ops.scan` or a Python
    loop over time, or it is an `nn.PSN`. Its name is its attribute path in the network, without the `.cell` of
    `nn.MultiStep` and similar Cells. For example, the neuron of `self.layer1 = nn.MultiStep(nn.LIFNode())` is "layer1".

    Select layers for `spikes`, `v`, `above` and `grad`: True for all, or names, Cells, or Cells that contain layers.

    Args:
        net: the network. Each call of it starts a new record; calls of parts alone share one record.
        spikes: the output of each neuron at each step (the first output if there are several).
        v: the potential after each step, after the reset. For a neuron without a state `v`, its first state.
        above: the spike function's input: in snncell's neurons, the potential before the reset minus the threshold.
        grad: the gradient with respect to the input current of the neuron at each step, through all later steps. You
            must compute the gradient within the context; a second gradient replaces the first.
        inputs: the inputs of Dense and Conv layers, for `costs` and `synops`, and the number of updates of neurons, for
            `energy`. The options `neurons` and `samples` do not limit these.
        every: record only each `every`-th step, to save memory.
        neurons: the number of recorded neurons per layer, evenly spaced, or a list of their indices. Records then have
            the shape (T, B, number of recorded neurons). An index counts over channels, rows and columns of images.
        samples: the number of recorded samples, the first ones of the batch.
        calls: the number of calls to keep, the last ones; None keeps all.

    If the network calls the same neuron twice, both calls are one layer, and the monitor joins their records along
    time. You should therefore use one neuron per layer. `train.fit(validation=...)` evaluates after each epoch, and the
    record of an evaluation has no gradient. Set `calls=None` to keep the records of the training steps as well.

    If a Cell around a layer gets an argument `lengths` (of padded sequences), spikes after the end of a sample are
    recorded as 0, and these steps do not count for rates and costs. `v`, `above` and `grad` contain the padding.

    Memory: while a loop runs, each recorded quantity of a layer takes T B N numbers. Afterwards the monitor keeps the
    part that you select by `every`, `neurons`, `samples` and `calls`.
    Raises: ArgumentError for a network without neurons, or a monitor within another one; RecordError if you read a
        quantity that was not recorded, with the reason; ShapeError if a layer was called with several shapes.
    Example:
        >>> net = nn.SequentialCell(nn.MultiStep(nn.IFNode()), nn.Dense(3, 2), nn.MultiStep(nn.IFNode(fire=False)))
        >>> with snncell.monitor(net, v="0", grad=True) as m:
        ...     dx = grad(net)(ops.ones((4, 1, 3)) * 0.375)
        >>> m.layers, m.spikes["0"][:, 0, 0].tolist(), m.v["0"][:, 0, 0].tolist()
        (('0', '2'), [0.0, 0.0, 1.0, 0.0], [0.375, 0.75, 0.125, 0.5])
        >>> # The potential keeps an input of step t until the end, so the input counts in 4 - t steps.
        >>> m.grad["2"][:, 0, 0].tolist()
        [4.0, 3.0, 2.0, 1.0]
    """

    def __init__(
        self,
        net: Cell,
        spikes: Any = True,
        v: Any = False,
        above: Any = False,
        grad: Any = False,
        inputs: bool = False,
        every: AtLeastOne = 1,
        neurons: Any = None,
        samples: AtLeastOne | None = None,
        calls: AtLeastOne | None = 1,
    ) -> None:
        requests = {"spikes": spikes, "v": v, "above": above, "grad": grad}
        self._recorder = Recorder(Neurons(net), requests, inputs, every, neurons, samples, calls)
        self._context: AbstractContextManager[None] | None = None

    def __enter__(self) -> Monitor:
        if CHECKING.watch is not None or self._context is not None:
            raise ArgumentError("monitor: another monitor is already recording. Use one monitor for all quantities.")
        self._recorder.look_again()
        self._context = settings(watch=self._recorder)
        self._context.__enter__()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._context is not None  # the monitor was entered
        self._context.__exit__(kind, error, trace)
        self._context = None

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the recorded layers, in the order of their calls."""
        return tuple(self._recorder.cells)

    @property
    def unseen(self) -> tuple[str, ...]:
        """Spiking layers that are not recorded, because they run their time steps themselves (`nn.EventPropLIF`)."""
        return self._recorder.neurons.unseen

    @property
    def calls(self) -> list[dict[str, Recorded]]:
        """The recorded calls, oldest first, each a dict: quantity -> layer -> array."""
        return [{k: Recorded(self, k, call) for k in call.series if k in KINDS} for call in self._recorder.calls]

    @property
    def spikes(self) -> Recorded:
        """The output of each layer in the last call only, (T, B, ...). Earlier calls are in `calls`."""
        return Recorded(self, "spikes", self._last)

    @property
    def v(self) -> Recorded:
        """The potential after each step and its reset, (T, B, ...)."""
        return Recorded(self, "v", self._last)

    @property
    def above(self) -> Recorded:
        """The input of the spike function: the potential before the reset, minus the threshold, (T, B, ...)."""
        return Recorded(self, "above", self._last)

    @property
    def grad(self) -> Recorded:
        """The gradient with respect to the input current of each layer at each step, (T, B, ...)."""
        return Recorded(self, "grad", self._last)

    def cell(self, name: Any) -> Cell:
        """The neuron of a layer."""
        layer = self._resolve(name)
        if layer not in self._recorder.cells:
            raise RecordError(f"monitor: {name!r:.60} was not recorded. {self._why(layer)}")
        return self._recorder.cells[layer]

    def spike_function(self, name: Any) -> Cell | None:
        """The spike function of a layer, the Cell that gets `above` as input; None for a layer without one."""
        cell, called = self.cell(name), self._recorder.fires_by.get(self._resolve(name))
        if any(called is below for below in spike_functions(cell)):
            return called
        # The called Cell may be a copy that has Tensors of a trace instead of Parameters.
        return spike_function_of(cell) or called

    def steps(self, name: Any, kind: str = "spikes") -> Array:
        """The numbers of the recorded time steps of a layer."""
        layer, series = self._resolve(name), self._last.series.get(kind, {})
        if layer not in series:
            raise RecordError(f"monitor: {missing(kind, name)} {self._why(layer, kind)}")
        return series[layer].steps()

    def neurons(self, name: Any) -> Array:
        """The indices of the recorded neurons in their layer, flattened over its axes."""
        cell, layer = self.cell(name), self._resolve(name)
        arrays = [array for kind in KINDS if (array := getattr(self, kind).get(layer)) is not None]
        if not arrays:
            raise RecordError(f"monitor: {name!r:.60}, a {type(cell).__name__}, was not recorded.")
        return self._recorder.numbers(layer, math.prod(arrays[0].shape[2:]))

    def fires(self, name: Any) -> bool:
        """True if the output of a layer is spikes, and False for a readout, whose output is its potential."""
        cell, layer = self.cell(name), self._resolve(name)
        above = layer in self.above if id(cell) in self._recorder.chosen_ids["above"] else None
        return gives_spikes(cell, self.spikes.get(layer), above)

    def rates(self, name: Any) -> Array:
        """The firing rate of each neuron of a layer: the share of steps with a spike, over all kept calls."""
        layer = self._resolve(name)
        kept = [call for call in self._recorder.calls if layer in call.series.get("spikes", ())]
        arrays = [Recorded(self, "spikes", call)[layer] for call in kept]
        if not arrays:
            raise RecordError(f"monitor: {missing('spikes', name)} {self._why(layer, 'spikes')}")
        if not self.fires(layer):
            raise RecordError(
                f"monitor: {name!r:.60}, a {type(self.cell(layer)).__name__}, does not fire: it has no rates. Its "
                f"output, m.spikes[{layer!r}], is its potential."
            )
        fired = sum((array != 0).sum((0, 1)) for array in arrays)
        there = [self._recorder.step_mask(call, layer) for call in kept]
        steps = [math.prod(a.shape[:2]) if t is None else t.sum() for a, t in zip(arrays, there, strict=True)]
        return np.asarray(fired / max(sum(steps), 1))

    def costs(self) -> dict[str, Any]:
        """The `Cost` of each layer with weights in the last call, with `every` an estimate; needs `inputs=True`."""
        costs: dict[str, Any] = plugin("costs of layers")(self._recorder.neurons, self._last_counted_call())
        return costs

    def synops(self) -> float:
        """The synaptic operations per sample of the last call, over all layers with weights; needs `inputs=True`."""
        synops: float = plugin("synaptic operations")(self._recorder.neurons, self._last_counted_call())
        return synops

    def energy(self, hardware: Any = "45nm", baseline: Any = None, reuse: bool = True) -> Any:
        """Estimate the `Energy` per sample of the last call, compared with the same network without spikes.

        Arguments are those of `monitoring.energy`. It needs `inputs=True`, and the spikes of all layers. With `every`,
        `neurons` or `samples`, the number of spikes is an estimate from the recorded part.
        """
        estimate = plugin("energy estimate")(hardware, baseline, reuse)
        call = self._last_counted_call(weights=False)
        return estimate(self._recorder.neurons, call, self.spikes, partial(self._recorder.step_mask, call))

    def _last_counted_call(self, weights: bool = True) -> RecordedCall:
        """The last call. Raise a RecordError without inputs of layers with weights, or if not `weights`, counts."""
        call = self._last
        if not (call.inputs if weights else call.order):
            unseen = ", ".join(self.unseen)
            if unseen and self._recorder.inputs and not call.order:
                raise RecordError(
                    f"monitor: there are no operations to count. These layers are not counted, because they run their "
                    f"time steps themselves: {unseen}. To count operations, the network needs a layer such as nn.Dense "
                    f"or a neuron in nn.MultiStep, and you must call it within the monitor."
                )
            mend = "None of them ran" if call.order else "Call the network within the monitor"
            mend = mend if self._recorder.inputs else "Use monitor(net, inputs=True)"
            raise RecordError(f"monitor: no inputs of Dense or Conv layers were recorded. {mend}.")
        return call

    @property
    def _last(self) -> RecordedCall:
        return self._recorder.calls[-1] if self._recorder.calls else RecordedCall()

    def _resolve(self, layer: Any) -> str:
        """The name of a layer, from its name, a path in the network, or a Cell."""
        if layer in self._recorder.cells:
            return str(layer)
        cell = self._recorder.neurons.paths.get(layer) if isinstance(layer, str) else layer
        below = [c for _, c in cell.cells_and_names()] if isinstance(cell, Cell) else []
        names = [name for name, neuron in self._recorder.cells.items() if any(neuron is c for c in below)]
        return names[0] if len(names) == 1 else str(layer)

    def _why(self, name: str, kind: str = "spikes") -> str:
        """The reason why a layer was not recorded, and the fix."""
        if not self._recorder.calls:
            return "The network was not called while the monitor was recording: call it within `with monitor(...):`."
        if name not in self._recorder.cells:
            others = ", ".join(self._recorder.cells) or "none"
            return f"Recorded layers: {others}; the network's neurons: {self._recorder.neurons.list_names()}."
        if id(self._recorder.cells[name]) not in self._recorder.chosen_ids[kind]:
            return f"Record it with monitor(net, {kind}=True)."
        if kind == "grad":
            return self._why_no_gradient(name)
        if kind == "above":
            if spike_functions(self._recorder.cells[name]):
                return "The last call did not call its spike function, for example because of fire=False."
            return "It has no spike function (a Cell with a bprop)."
        return "The last call did not record it."

    def _why_no_gradient(self, name: str) -> str:
        calls = [n for n, call in enumerate(self._recorder.calls) if name in call.series.get("grad", {})]
        if calls:
            return f"The last call has no gradient, but an earlier one has: m.calls[{calls[-1]}]['grad'][{name!r}]."
        return (
            "The last call has no gradient. It may be an evaluation, which train.fit runs after each epoch: then use "
            "monitor(net, grad=True, calls=None), and read m.calls[i]['grad']. Otherwise call snncell.grad or "
            "value_and_grad within the monitor. The loss must depend on the layer, and the gradient must be with "
            "respect to a Parameter or an input before the layer."
        )

    def __repr__(self) -> str:
        rows = [f"  {name} ({kind}): {words}" for name, kind, words in self._rows()]
        return "\n".join([self._title(), *cut_lines(rows)])

    def _repr_html_(self) -> str:
        """For notebooks: a table of the layers, with the arrays recorded in the last call."""
        return titled_table(self._title(), ("layer", "class", "recorded in the last call"), self._rows())

    def _title(self) -> str:
        calls = len(self._recorder.calls)
        return f"Monitor of {type(self._recorder.neurons.net).__name__}: {calls} call{'' if calls == 1 else 's'} kept"

    def _rows(self) -> list[tuple[str, str, str]]:
        """The name and the class of each layer, and the quantities that were recorded."""
        rows = []
        for name, cell in self._recorder.cells.items():
            kinds = [kind for kind in KINDS if name in self._last.series.get(kind, {})]
            rows.append((name, type(cell).__name__, ", ".join(kinds) or "nothing"))
        for name in self._recorder.neurons.unseen:
            layer, _, kind = name.removesuffix(")").rpartition(" (")
            rows.append((layer, kind, "not recorded, because it runs its time steps itself"))
        return rows
