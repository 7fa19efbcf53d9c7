"""A network of whole numbers: run by NumPy, kept in a file."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Path
from snncell.errors import ArgumentError, CheckpointError
from snncell.io.checkpoint import read_arrays, write_arrays
from snncell.quantise import integer, steps

FORMAT = "snncell integer network, 1"
_LAYERS = (
    *(integer.Encode, integer.Requantise, integer.IntegerProduct, integer.IntegerPool, integer.IntegerFlatten),
    *(integer.IntegerDelay, integer.IntegerReadout, integer.OverTime, steps.IntegerNeuron, steps.IntegerSteps),
)
KINDS: dict[str, Any] = {kind.__name__.removeprefix("Integer"): kind for kind in _LAYERS}  # by their names in a file


@dataclass(frozen=True, eq=False)
class IntegerNet:
    """Layers of whole numbers, one after the other.

    Attributes:
        layers: dataclasses of `snncell.quantise.integer`: weights, multipliers, shifts, thresholds, limits.
    """

    layers: tuple[Any, ...]

    @property
    def step(self) -> float:
        """The value of one unit of the output: 1 of spikes, 2^-fraction of potentials."""
        return float(2.0 ** self.layers[-1].exponent) if self.layers else 1.0

    def run(self, x: Any) -> np.ndarray[Any, Any]:
        """The output of an input (T, B, ...), as int32: spikes, or potentials in units of `step`.

        Args:
            x: whole numbers, such as spikes: booleans, integers, or floats that are whole; or, where the first layer
                quantises its inputs, any floats.

        Raises:
            ArgumentError: for an input that is not whole where it has to be.

        Example:
            >>> net = nn.SequentialCell(nn.Dense(1, 1, weight_init="ones", has_bias=False), nn.MultiStep(nn.LINode()))
            >>> net = snncell.quantise.prepare(net, snncell.quantise.Uniform(8), snncell.quantise.FixedPoint(12, 8))
            >>> whole = snncell.quantise.export(net)
            >>> print(whole.run([[[1]], [[0]]]).ravel(), whole.step)
            [128  64] 0.00390625
        """
        values = np.asarray(x.asnumpy() if hasattr(x, "asnumpy") else x)
        if not any(isinstance(layer, integer.Encode) for layer in self.layers):
            values = _whole(values)
        for layer in self.layers:
            values = layer.run(values)
        return values.astype(np.int32)

    def save(self, file: Path) -> None:
        """Write the network to a safetensors file: its arrays, and as JSON beside them all else.

        Raises:
            CheckpointError: if it cannot be written.
        """
        arrays: dict[str, Any] = {}
        described = [_describe_layer(layer, str(place), arrays) for place, layer in enumerate(self.layers)]
        header = {"format": FORMAT, "layers": json.dumps(described)}
        write_arrays(file, arrays, header, "save")

    @classmethod
    def load(cls, file: Path) -> IntegerNet:
        """Read a network that `save` wrote.

        Raises:
            CheckpointError: if the file is missing, damaged, or another one.
        """
        arrays, header = read_arrays(file, "load")
        if header.get("format") != FORMAT:
            raise CheckpointError(
                f"load: {file} is no integer network of this version ({FORMAT!r}), but {header.get('format')!r}; "
                f"IntegerNet.save writes one, and load_checkpoint reads checkpoints."
            )
        try:
            described = json.loads(header["layers"])
            return cls(tuple(_make_layer(one, arrays) for one in described))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"load: {file} is damaged: {error!r}.") from None

    def __repr__(self) -> str:
        lines = [f"  {place}: {_summary(layer)}" for place, layer in enumerate(self.layers)]
        return "\n".join([f"IntegerNet, {self.weight_bytes} bytes of weights", *lines])

    @property
    def weight_bytes(self) -> int:
        """The bytes of all weights and biases."""
        arrays: dict[str, Any] = {}
        for place, layer in enumerate(self.layers):
            _describe_layer(layer, str(place), arrays)
        return sum(a.nbytes for name, a in arrays.items() if name.rpartition(".")[2] in ("weight", "bias"))


def _whole(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if values.dtype.kind == "f" and not np.all(values == np.rint(values)):
        raise ArgumentError(
            "run: x are whole numbers, such as spikes, and some of these are not. A network for other inputs has "
            "quantise.prepare(net, ..., activations=quantise.FixedPoint(8, 6)) before it is exported."
        )
    if values.dtype.kind not in "biuf":
        raise ArgumentError(f"run: x are numbers, not an array of {values.dtype}.")
    return values.astype(np.int32)


def _summary(layer: Any) -> str:
    inner = getattr(layer, "layer", layer)
    inner = getattr(inner, "neuron", inner)
    weight = getattr(inner, "weight", None)
    what = "" if weight is None else f" {inner.kind} {weight.shape} {weight.dtype}"
    return f"{_kind_name(inner)}{what}, unit 2^{layer.exponent}"


# --- files ------------------------------------------------------------------------------------------------------------


def _describe_layer(layer: Any, path: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """A layer as JSON; its arrays go into `arrays`, and their names stand in their places."""
    fields: dict[str, Any] = {}
    for one in dataclasses.fields(layer):
        value, name = getattr(layer, one.name), f"{path}.{one.name}"
        if isinstance(value, np.ndarray):
            arrays[name] = value
            value = {"array": name}
        elif isinstance(value, integer.IntegerLayer):
            value = {"layer": _describe_layer(value, name, arrays)}
        fields[one.name] = value
    return {"kind": _kind_name(layer), "fields": fields}


def _kind_name(layer: Any) -> str:
    return type(layer).__name__.removeprefix("Integer")


def _make_layer(described: Any, arrays: dict[str, Any]) -> Any:
    """The layer that was described."""
    fields = {name: _value(value, arrays) for name, value in described["fields"].items()}
    return KINDS[described["kind"]](**fields)


def _value(value: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return arrays[value["array"]] if "array" in value else _make_layer(value["layer"], arrays)
    return tuple(value) if isinstance(value, list) else value
