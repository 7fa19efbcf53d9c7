"""Neurons and layers of `snncell.nn` as nodes of NIR."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import nn
from snncell.base.arguments.guard import ours
from snncell.cell.cell import Cell
from snncell.cell.ranges import quote_value
from snncell.errors import NirError
from snncell.nir.graph import Node, Shape
from snncell.nir.layers import Delay, Heaviside, Scale
from snncell.nir.neurons import Equation, constants_of, equation_of
from snncell.nn.dataflow import beyond_threshold, kind_of
from snncell.ops.conv import padding_widths, tuple_of
from snncell.ops.random import present_key, replaying
from snncell.tape.tensor import Tensor

Loss = tuple[str, str]  # what NIR cannot say, and what is written

NEAR: dict[type, str] = {
    nn.ALIFNode: "adapts its threshold",
    nn.MultiSpikeLIFNode: "gives several spikes in a step",
    nn.ILIFNode: "gives whole numbers of spikes",
    nn.RefractoryLIFNode: "rests after a spike",
}


class Writer:
    """The way a graph is written: dt, the method that it is to be read with, and what is lost so far, by path."""

    def __init__(self, dt: float, method: str) -> None:
        self.dt, self.method = dt, method
        self.lost: list[str] = []

    def lose(self, path: str, cell: Cell, what: str, writes: str) -> None:
        """Note that NIR cannot say something."""
        self.lost.append(f"{path or 'the net'} ({type(cell).__name__}) {what}: NIR has no word for it. {writes}")

    def seconds(self, steps: Any) -> Any:
        """A time constant in seconds, of which a reader's step keeps 1 - 1 / steps."""
        if self.method == "euler":
            return steps * self.dt
        with np.errstate(divide="ignore"):
            return -self.dt / np.log1p(-1.0 / steps)

    # --- neurons ------------------------------------------------------------------------------------------------------

    def neuron(self, cell: Any, shape: Shape, path: str, kept: dict[str, Any] | None = None) -> list[Node]:
        """The nodes of a neuron, one after the other.

        Args:
            kept: metadata of the graph that it comes from: what they say is not lost.
        """
        _refuse_rule(cell, path)
        plain = self._plain(cell, path)
        equation = equation_of(plain)
        if equation is None:
            raise NirError(
                f"to_nir: {path or 'the net'} is a {type(cell).__name__}: NIR has no node for it, nor one near it. It "
                f"has {', '.join(kind.__name__ for kind in _EXACT)}."
            )
        if not equation.fires:
            return [*self._late(equation, shape), self._membrane(equation, shape, path, cell)]
        fires: Any = plain.cell if isinstance(plain, nn.WithSynapse) else plain
        now = constants_of(fires)
        metadata = self._options(fires, path, kept or {})
        nodes = self._late(equation, shape)
        if fires.reset is None:
            threshold = {"threshold": _spread(now["v_threshold"], shape, path, "v_threshold")}
            compare = {name: metadata[name] for name in ("compare",)}
            nodes += [self._membrane(equation, shape, path, cell), Node("Threshold", threshold, compare)]
        else:
            reset = now["v_reset"] if fires.reset == "value" else np.array(0.0)
            node = self._membrane(equation, shape, path, cell)
            node.kind = {"I": "IF", "LI": "LIF", "CubaLI": "CubaLIF"}[node.kind]
            for name, value in (("v_threshold", now["v_threshold"]), ("v_reset", reset)):
                node.values[name] = _spread(value, shape, path, name)
            if (now[fires.starts] != equation.rest).any() and fires.starts != "v_rest":
                metadata["start"] = fires.starts
            node.metadata |= metadata
            nodes.append(node)
        if isinstance(fires, nn.IFNode) and (now["v_threshold"] != 1.0).any():  # whose spikes have this size
            nodes.append(Node("Scale", {"scale": _spread(now["v_threshold"], shape, path, "v_threshold")}))
        return nodes

    def _plain(self, cell: Any, path: str) -> Any:
        """A neuron as it is; in place of one that is near to one of NIR's, that one, noting what is lost."""
        kind = kind_of(cell)
        if kind not in NEAR:
            return cell
        self.lose(path, cell, NEAR[kind], "Written is an LIF without that.")
        now = constants_of(cell)
        options = {name: now[name] for name in ("v_threshold", "v_reset", "input_gain")}
        options |= {"reset": cell.reset, "compare": cell.compare}
        if kind in (nn.ALIFNode, nn.MultiSpikeLIFNode):
            return nn.LeakyNode(now["alpha" if kind is nn.ALIFNode else "beta"], **options)
        return nn.LIFNode(now["tau"], decay_input=cell.decay_input, v_rest=now["v_rest"], **options)

    def _options(self, cell: Any, path: str, kept: dict[str, Any]) -> dict[str, Any]:
        """The metadata of a neuron that fires, noting which of them say more than NIR does."""
        reset = "subtract" if cell.reset == "subtract" else "value"
        if cell.reset == "subtract" and kept.get("reset") != "subtract":
            what = "subtracts the threshold at a spike"
            self.lose(path, cell, what, 'Written is v_reset=0, and reset="subtract" in the metadata, for from_nir.')
        if cell.compare == ">=" and kept.get("compare") != ">=":
            what = "fires at its threshold too"
            self.lose(path, cell, what, 'Written is compare=">=" in the metadata, for from_nir; others fire above it.')
        late = {} if cell.delay is None else {"delay": cell.delay}
        if cell.delay is not None and kept.get("delay") != cell.delay:
            what = f"has delay={cell.delay!r}"
            self.lose(path, cell, what, "Written is that in the metadata, for from_nir; others reset in the same step.")
        if cell.max_spikes != 1 and kind_of(cell) not in NEAR:
            self.lose(path, cell, "gives several spikes in a step", "Written is one at most.")
        return {"reset": reset, "compare": cell.compare} | late

    def _late(self, equation: Equation, shape: Shape) -> list[Node]:
        return [Node("Delay", {"delay": np.full(shape, self.dt)})] if equation.late else []

    def _membrane(self, equation: Equation, shape: Shape, path: str, cell: Cell) -> Node:
        """The node of what does not fire."""
        leaks = np.isfinite(equation.tau)
        current = equation.tau_syn is not None
        if not (leaks.all() or (not leaks.any() and not current)) or (
            current and not np.isfinite(equation.tau_syn).all()
        ):
            raise NirError(
                f"to_nir: {path or 'the net'} ({type(cell).__name__}): a potential or a current that keeps all of "
                f"itself has no time constant, and with others that decay there is no node of NIR for it."
            )
        if not leaks.any():
            return Node("I", {"r": _spread(equation.r / self.dt, shape, path, "r")})
        values = {"r": equation.r, "v_leak": equation.rest}
        times = {"tau_mem": equation.tau, "tau_syn": equation.tau_syn} if current else {"tau": equation.tau}
        values |= {name: self.seconds(steps) for name, steps in times.items()}
        values |= {"w_in": equation.w_in} if current else {}
        if any((values[name] <= 0).any() for name in times):
            raise NirError(
                f"to_nir: {path or 'the net'} ({type(cell).__name__}): what keeps nothing of itself has no time "
                f'constant with method="exponential"; "euler" writes dt.'
            )
        spread = {name: _spread(value, shape, path, name) for name, value in values.items()}
        return Node("CubaLI" if current else "LI", spread)

    # --- layers -------------------------------------------------------------------------------------------------------

    def layer(self, cell: Any, shape: Shape, path: str, axes: int) -> list[Node] | None:
        """The nodes of a layer, None for what is none; `axes` is how many there are before those of a sample."""
        kind = kind_of(cell)
        if kind in (nn.Dense, nn.Linear):
            if cell.activation is not None:
                self.lose(path, cell, "has an activation", "Written is the layer without it.")
            weight = array_of(cell.weight)
            values = {"weight": weight, "bias": array_of(cell.bias)} if cell.has_bias else {"weight": weight}
            return [Node("Affine" if cell.has_bias else "Linear", values)]
        if kind in (nn.Conv1d, nn.Conv2d):
            return [_convolution(cell, shape, path)]
        if kind in (nn.SumPool2d, nn.AvgPool2d, nn.MaxPool2d):
            return [self._pool(cell, shape, path)]
        if kind is nn.Flatten:
            count = len(shape) + axes
            first, last = (n + count if n < 0 else n for n in (cell.start_dim, cell.end_dim))
            if first < axes:
                raise NirError(
                    f"to_nir: {path} (Flatten) begins at axis {cell.start_dim}, which is time or batch: here it is to "
                    f"begin at {axes}, nn.Flatten({axes}), or inside of nn.TimeDistributed at 1."
                )
            return [Node("Flatten", {"start_dim": first - axes, "end_dim": last - axes})]
        if kind is nn.AxonalDelay:
            delay = np.clip(array_of(cell.delay), 0.0, cell.max_delay) * self.dt
            return [
                Node("Delay", {"delay": _spread(delay.reshape(-1, *(1,) * (len(shape) - 1)), shape, path, "delay")})
            ]
        if kind is Delay:
            return [Node("Delay", {"delay": np.asarray(cell.steps, np.float64).reshape(shape) * self.dt})]
        if kind is Scale:
            return [Node("Scale", {"scale": _spread(array_of(cell.scale), shape, path, "scale")})]
        if kind is Heaviside:
            return [Node("Threshold", {"threshold": _spread(array_of(cell.threshold), shape, path, "threshold")})]
        if kind is nn.SynapseFilter and not cell.euler:
            tau = np.asarray(1.0 / -np.expm1(-1.0 / cell.tau))
            return [self._membrane(Equation(tau, np.array(1.0) if cell.scale_input else tau), shape, path, cell)]
        return None

    def _pool(self, cell: Any, shape: Shape, path: str) -> Node:
        options, pool = cell.options, kind_of(cell)
        if options.get("ceil_mode") or options.get("divisor_override") is not None:
            raise NirError(
                f"to_nir: {path} ({type(cell).__name__}) has ceil_mode or divisor_override, as no pool of NIR."
            )
        size, stride = (tuple_of(n, 2, type(cell).__name__, "kernel_size", 1) for n in (cell.kernel_size, cell.stride))
        spread = tuple_of(options.get("dilation", 1), 2, type(cell).__name__, "dilation", 1)
        if pool is nn.MaxPool2d:
            if spread != (1, 1):
                raise NirError(f"to_nir: {path} (MaxPool2d) has dilation={spread}, and no pool of NIR has that.")
            self.lose(path, cell, "takes the largest of a window", "Written is an AvgPool2d.")
        widths = _padding(cell, shape, size, stride, spread, options["pad_mode"], options["padding"], path)
        counted = options["pad_mode"] == "pad" and options.get("count_include_pad", True)
        if any(widths) and pool is nn.AvgPool2d and not counted:
            self.lose(path, cell, "leaves its padding out of the mean", "Written is one that counts it.")
        kind = "SumPool2d" if pool is nn.SumPool2d else "AvgPool2d"
        return Node(kind, {"kernel_size": size, "stride": stride, "padding": widths})


_EXACT = (nn.IFNode, nn.LIFNode, nn.LeakyNode, nn.ParametricLIFNode, nn.LINode, nn.CubaLIFNode, nn.WithSynapse)


def _refuse_rule(cell: Any, path: str) -> None:
    """Raise for a neuron whose spike function does not fire above a threshold, as NIR's neurons do."""
    inner = cell.cell if kind_of(cell) is nn.WithSynapse else cell
    function = None if getattr(inner, "own_function", True) else beyond_threshold(inner.surrogate_function)
    if function is not None and (ours(type(function)) or not _fires_above_zero(function)):
        raise NirError(
            f"to_nir: {path or 'the net'} ({type(cell).__name__}) fires by the rule of {type(function).__name__}, and "
            f"NIR's neurons fire above a threshold. Give it a spike function whose construct is x > 0, such as "
            f"snncell.surrogate.ATan()."
        )


def _fires_above_zero(function: Any) -> bool:
    """True if a spike function gives 1 where x > 0 and else 0, at many x of all sizes."""
    size = 2.0 ** np.arange(-126, 100, dtype=np.float32)
    even = np.linspace(-4.0, 4.0, 2001, dtype=np.float32)
    x = np.concatenate([np.zeros(1, np.float32), size, -size, even])
    with replaying(present_key()):  # the next numbers drawn are those that would have been
        return bool((np.asarray(function(Tensor(x)).asnumpy(), np.float32) == (x > 0)).all())


def array_of(value: Any) -> Any:
    """The elements of a Parameter, in a dtype that HDF5 has."""
    array = value.asnumpy() if isinstance(value, Tensor) else np.asarray(value)
    return array.astype(np.float32) if array.dtype.itemsize < 4 else np.array(array)


def _spread(value: Any, shape: Shape, path: str, name: str) -> Any:
    """A constant for each neuron, as NIR has them."""
    value = np.asarray(value)
    try:
        return np.broadcast_to(value, shape).copy()
    except ValueError:
        raise NirError(
            f"to_nir: {path or 'the net'}: {name} has the shape {value.shape}, the neurons {quote_value(list(shape))}."
        ) from None


def _convolution(cell: Any, shape: Shape, path: str) -> Node:
    axes, who = cell.axes, kind_of(cell).__name__
    stride, spread = (tuple_of(n, axes, who, "stride", 1) for n in (cell.stride, cell.dilation))
    widths = _padding(cell, shape, cell.kernel_size, stride, spread, cell.pad_mode, cell.padding, path)
    weight = array_of(cell.weight)
    values = {
        "weight": weight,
        "bias": array_of(cell.bias) if cell.has_bias else np.zeros(weight.shape[0], weight.dtype),
        "stride": stride,
        "padding": widths,
        "dilation": spread,
        "groups": cell.group,
    }
    return Node(who, values, {} if cell.has_bias else {"has_bias": False})


def _padding(cell: Any, shape: Shape, size: Any, stride: Any, spread: Any, mode: str, padding: Any, path: str) -> Any:
    """The elements to add on both sides of each axis; "same" where the sides differ and NIR's "same" is that, too."""
    if len(shape) != len(size) + 1:
        raise NirError(f"to_nir: {path} ({type(cell).__name__}) takes {len(size) + 1} axes, but gets {list(shape)}.")
    flat = padding_widths(shape[1:], size, stride, spread, mode, padding, type(cell).__name__)
    pairs = list(zip(flat[::2], flat[1::2], strict=True))[::-1]
    if all(before == after for before, after in pairs):
        return tuple(before for before, _ in pairs)
    if mode == "same" and all(step == 1 for step in stride) and "Conv" in kind_of(cell).__name__:
        return "same"
    raise NirError(
        f"to_nir: {path} ({type(cell).__name__}) adds {pairs} before and after its axes, and NIR the same on both "
        f'sides: give pad_mode="pad" and padding, or a kernel_size that is odd.'
    )
