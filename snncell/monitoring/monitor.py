"""monitor: record the spikes, potentials and gradients of a network's neurons while it runs."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np

from snncell.base.arguments.names import plugin
from snncell.base.arguments.shown import cut_lines, titled_table
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, RecordError
from snncell.monitoring.layers import Neurons, gives_spikes, spike_function_of, spike_functions
from snncell.monitoring.recorder import KINDS, Recorded, RecordedCall, Recorder, missing
from snncell.tape.state import CHECKING, settings


class Monitor:
    """Records what the neurons of a network do while it runs in the context: `with snncell.monitor(net) as m:`.

    What is recorded leaves the kernels as a further result of them: a loop over time stays one kernel, a jitted step
    one Program, and no bit of their results changes. A first call with a monitor is traced, and compiled, for what is
    recorded; monitors that record the same share that.

    A layer is a neuron where the network calls it, and is called by its path without the `.cell` of what runs it:
    "layer1" for `self.layer1 = nn.MultiStep(nn.LIFNode())`. Recorded are the neurons that run over time, by MultiStep,
    ops.scan or a loop in Python, eagerly, under `jit`, in graph mode and in `train.fit`, and `PSN`.

    Args:
        net: the network. A call of it begins a new record; if only parts of it are called, one record holds all.
        spikes: what each neuron gives at each step, of several outputs the first: True for all layers, or a layer by
            its name or Cell (also one that neurons lie below), or a list of these.
        v: the potential after each step, and so after its reset; of a neuron without a state v, its first state.
        above: what the spike function is given: for the library's neurons the potential before the reset, minus the
            threshold.
        grad: the gradient, of whatever is differentiated in the context, with respect to the current that comes into
            the neuron at each step, through all later steps. A gradient that is taken again takes the place of the one
            before.
        inputs: of the Dense and Conv layers, and the steps of neurons, from which `costs`, `synops` and `energy` count
            operations; of all neurons and samples.
        every: record each `every`-th step only.
        neurons: how many neurons of each layer, evenly spread over it, or a list of their indices (in a layer of
            images, counted over channels, rows and columns together); then records are (T, B, neurons).
        samples: how many samples of the batch, the first.
        calls: how many calls are kept, the last ones; None keeps all.

    A neuron that is called twice, under one name, in one call of the network is one layer, joined along time: the
    second call's steps follow the first's. Give each layer a neuron of its own. `train.fit` with `validation=`
    evaluates after each epoch, so its last call has no gradient; `calls=None` keeps those that have.

    Lengths of padded sequences are those that the innermost Cell around a layer is called with, under the name
    `lengths`: a MultiStep, a part of the network, or the network. Behind its end a sample's spikes are 0, and are no
    steps of its rates and costs; v, above and grad are what the loop made of the padding. A layer with another batch
    than the lengths has none.

    A quantity of a layer takes T B N numbers while its loop runs; what is kept beyond is what `every`, `neurons` and
    `samples` leave of it, for as many calls as `calls` says.

    Attributes:
        spikes, v, above, grad: by layer, arrays (T, B, ...), of the last call.
        calls: for each call that is kept, oldest first, quantity -> layer -> array.
        layers: the names of the layers that were called, in that order.

    Raises:
        ArgumentError: for a Cell that is not in the network, a network without neurons, or a monitor within another.
        RecordError: an ArgumentError, when something is read that was not recorded; it says why.
        ShapeError: when a layer is read that was called with several shapes.

    Example:
        >>> net = nn.SequentialCell(nn.MultiStep(nn.IFNode()), nn.Dense(3, 2), nn.MultiStep(nn.IFNode(fire=False)))
        >>> with snncell.monitor(net, v="0", grad=True) as m:
        ...     dx = grad(net)(ops.ones((4, 1, 3)) * 0.375)
        >>> m.layers, m.spikes["0"][:, 0, 0].tolist(), m.v["0"][:, 0, 0].tolist()
        (('0', '2'), [0.0, 0.0, 1.0, 0.0], [0.375, 0.75, 0.125, 0.5])
        >>> m.grad["2"][:, 0, 0].tolist()  # the sum over four steps of a potential that keeps its input
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
        every: int = 1,
        neurons: Any = None,
        samples: int | None = None,
        calls: int | None = 1,
    ) -> None:
        requests = {"spikes": spikes, "v": v, "above": above, "grad": grad}
        self._recorder = Recorder(Neurons(net), requests, inputs, every, neurons, samples, calls)
        self._context: AbstractContextManager[None] | None = None

    def __enter__(self) -> Monitor:
        if CHECKING.watch is not None or self._context is not None:
            raise ArgumentError("monitor: another monitor is recording already; let one record all that is wanted.")
        self._recorder.look_again()
        self._context = settings(watch=self._recorder)
        self._context.__enter__()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._context is not None  # it was entered
        self._context.__exit__(kind, error, trace)
        self._context = None

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers of which something was recorded, in the order in which they were called."""
        return tuple(self._recorder.cells)

    @property
    def unseen(self) -> tuple[str, ...]:
        """The spiking layers that run their time steps themselves, for example `nn.EventPropLIF`: none is recorded."""
        return self._recorder.neurons.unseen

    @property
    def calls(self) -> list[dict[str, Recorded]]:
        """The recordings of each call that is kept: quantity -> layer -> array."""
        return [
            {kind: self._recorded(kind, call) for kind in call.series if kind in KINDS} for call in self._recorder.calls
        ]

    @property
    def spikes(self) -> Recorded:
        """The output of each layer, (T, B, ...)."""
        return self._recorded("spikes")

    @property
    def v(self) -> Recorded:
        """The potential after each step, and so after its reset, (T, B, ...)."""
        return self._recorded("v")

    @property
    def above(self) -> Recorded:
        """The input of the spike function: the potential before the reset, minus the threshold, (T, B, ...)."""
        return self._recorded("above")

    @property
    def grad(self) -> Recorded:
        """The gradient with respect to the current that comes into each layer at each step, (T, B, ...)."""
        return self._recorded("grad")

    def cell(self, name: Any) -> Cell:
        """The neuron of a layer."""
        layer = self._resolve(name)
        if layer not in self._recorder.cells:
            raise RecordError(f"monitor: nothing of {name!r:.60} was recorded. {self._why(layer)}")
        return self._recorder.cells[layer]

    def spike_function(self, name: Any) -> Cell | None:
        """The spike function of a layer, whatever its neuron calls it: the Cell with a bprop whose input is `above`.

        Where `above` was not recorded, the one that the neuron is built with; None if it has none.
        """
        cell, called = self.cell(name), self._recorder.fires_by.get(self._resolve(name))
        if any(called is below for below in spike_functions(cell)):
            return called
        # What was called may be a copy of the Cell, with Tensors of a trace in the place of its Parameters.
        return spike_function_of(cell) or called

    def steps(self, name: Any, kind: str = "spikes") -> np.ndarray[Any, Any]:
        """The numbers of the time steps that were recorded of a layer."""
        series = {} if not self._recorder.calls else self._recorder.calls[-1].series.get(kind, {})
        layer = self._resolve(name)
        if layer not in series:
            raise RecordError(f"monitor: {missing(kind, name)} {self._why(layer, kind)}")
        return series[layer].steps()

    def neurons(self, name: Any) -> np.ndarray[Any, Any]:
        """The numbers in their layer of the neurons that were recorded, counted over all its axes together."""
        cell, layer = self.cell(name), self._resolve(name)
        arrays = [array for kind in KINDS if (array := self._recorded(kind).get(layer)) is not None]
        if not arrays:
            raise RecordError(f"monitor: nothing of {name!r:.60}, a {type(cell).__name__}, was recorded.")
        return self._recorder.numbers(layer, math.prod(arrays[0].shape[2:]))

    def fires(self, name: Any) -> bool:
        """True if a layer gives spikes; one that integrates without firing gives its potential."""
        cell, layer = self.cell(name), self._resolve(name)
        above = layer in self.above if id(cell) in self._recorder.chosen_ids["above"] else None
        return gives_spikes(cell, self.spikes.get(layer), above)

    def rates(self, name: Any) -> np.ndarray[Any, Any]:
        """The share of steps and samples in which each neuron of a layer fired, over all calls that are kept.

        Steps behind the end of a sample, where lengths are known, are no steps.
        """
        layer = self._resolve(name)
        kept = [call for call in self._recorder.calls if layer in call.series.get("spikes", ())]
        arrays = [self._recorded("spikes", call)[layer] for call in kept]
        if not arrays:
            raise RecordError(f"monitor: {missing('spikes', name)} {self._why(layer, 'spikes')}")
        if not self.fires(layer):
            raise RecordError(
                f"monitor: {name!r:.60}, a {type(self.cell(layer)).__name__}, does not fire: it has no rates. What it "
                f"gives is its potential: m.spikes[{layer!r}]."
            )
        fired = sum((array != 0).sum((0, 1)) for array in arrays)
        there = [self._recorder.there(call, layer) for call in kept]
        steps = [math.prod(a.shape[:2]) if t is None else t.sum() for a, t in zip(arrays, there, strict=True)]
        return np.asarray(fired / max(sum(steps), 1))

    def costs(self) -> dict[str, Any]:
        """The `Cost` of each layer with weights in the last call; an estimate if only every k-th step is recorded."""
        costs: dict[str, Any] = plugin("costs of layers")(self._recorder.neurons, self._counted())
        return costs

    def synops(self) -> float:
        """The synaptic operations of the last call per sample, of all layers with weights; needs `inputs=True`."""
        synops: float = plugin("synaptic operations")(self._recorder.neurons, self._counted())
        return synops

    def energy(self, hardware: Any = "45nm", baseline: Any = None, reuse: bool = True) -> Any:
        """Estimate the energy of the last call per sample, beside the same net without spikes: an `Energy`.

        It needs `inputs=True`, and the spikes of all layers. Where every k-th step, some neurons or samples alone are
        recorded, the outputs of neurons are an estimate from those.

        Args:
            hardware, baseline, reuse: as for `monitoring.energy`.

        Raises:
            ArgumentError: for unknown hardware.
            RecordError: if inputs, or the spikes of a layer, were not recorded.
        """
        estimate = plugin("energy estimate")(hardware, baseline, reuse)
        call = self._counted(weights=False)
        return estimate(self._recorder.neurons, call, self.spikes, partial(self._recorder.there, call))

    def _counted(self, weights: bool = True) -> RecordedCall:
        """The last call, of which inputs of layers with weights, or the steps of neurons, were recorded."""
        call = self._recorder.calls[-1] if self._recorder.calls else RecordedCall()
        if not (call.inputs if weights else call.order):
            unseen = ", ".join(self.unseen)
            if unseen and self._recorder.inputs and not call.order:
                raise RecordError(
                    f"monitor: nothing was recorded whose operations can be counted. Not counted, because they run "
                    f"their time steps themselves: {unseen}. Call the network within the monitor; it needs another "
                    f"layer, such as nn.Dense or a neuron in nn.MultiStep."
                )
            mend = "None of them ran" if call.order else "Call the network within the monitor"
            mend = mend if self._recorder.inputs else "monitor(net, inputs=True)"
            raise RecordError(f"monitor: no inputs of Dense or Conv layers were recorded. {mend}.")
        return call

    def _recorded(self, kind: str, call: RecordedCall | None = None) -> Recorded:
        call = call or (self._recorder.calls[-1] if self._recorder.calls else RecordedCall())
        by_name = call.series.get(kind, {})  # gradients came last layer first
        series = {name: by_name[name] for name in self._recorder.cells if name in by_name}
        there = partial(self._recorder.there, call)
        return Recorded(kind, series, self._resolve, lambda name: self._why(name, kind), there)

    def _resolve(self, layer: Any) -> str:
        """The name of the layer that is meant: a name, a path of the network, or a Cell."""
        if layer in self._recorder.cells:
            return str(layer)
        cell = self._recorder.neurons.paths.get(layer) if isinstance(layer, str) else layer
        below = [c for _, c in cell.cells_and_names()] if isinstance(cell, Cell) else []
        names = [name for name, neuron in self._recorder.cells.items() if any(neuron is c for c in below)]
        return names[0] if len(names) == 1 else str(layer)

    def _why(self, name: str, kind: str = "spikes") -> str:
        """Why there is no record of a layer, and what to do."""
        if not self._recorder.calls:
            return "The network was not called while the monitor was recording: call it within `with monitor(...):`."
        if name not in self._recorder.cells:
            others = ", ".join(self._recorder.cells) or "none"
            return f"Recorded layers: {others}; the network's neurons: {', '.join(self._recorder.neurons.names())}."
        if id(self._recorder.cells[name]) not in self._recorder.chosen_ids[kind]:
            return f"Ask for it: monitor(net, {kind}=True)."
        if kind == "grad":
            return self._why_no_gradient(name)
        if kind == "above":
            fires = spike_functions(self._recorder.cells[name])
            return "It did not fire." if fires else "It has no spike function, a Cell with a bprop."
        return "It gave none in the last call."

    def _why_no_gradient(self, name: str) -> str:
        held = [n for n, call in enumerate(self._recorder.calls) if name in call.series.get("grad", {})]
        if held:
            return (
                f"No gradient came by in the last call; an earlier one has it: m.calls[{held[-1]}]['grad'][{name!r}]."
            )
        return (
            "No gradient came by in the last call, which may have been an evaluation, as train.fit makes one after "
            "each epoch: monitor(net, grad=True, calls=None) keeps earlier calls too, in m.calls[i]['grad']. Otherwise "
            "take it within the monitor (snncell.grad, value_and_grad), of something that depends on the layer, with "
            "respect to something before it."
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
        series = self._recorder.calls[-1].series if self._recorder.calls else {}
        rows = []
        for name, cell in self._recorder.cells.items():
            kinds = [kind for kind in KINDS if name in series.get(kind, {})]
            rows.append((name, type(cell).__name__, ", ".join(kinds) or "nothing"))
        for name in self._recorder.neurons.unseen:
            layer, _, kind = name.removesuffix(")").rpartition(" (")
            rows.append((layer, kind, "not recorded, because it runs its time steps itself"))
        return rows
