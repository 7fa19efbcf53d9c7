"""The state of a training, in memory and as a file: weights, buffers, optimiser, random numbers, notes."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from snncell.cell.cell import Cell
from snncell.cell.state import replace_buffers
from snncell.errors import ArgumentError, CheckpointError, SnncellError
from snncell.io import read_arrays, write_arrays
from snncell.nn.optim.optimizer import Optimizer
from snncell.nn.time.states import cells_of, find_statefuls
from snncell.ops.random import assign_seed, present_key, set_seed
from snncell.tape.parameter import Parameter, assign_all, together
from snncell.tape.state import Undo
from snncell.tape.tensor import Tensor

__all__ = ["load_state", "save_state"]

File = str | os.PathLike[str]
_INTERNAL = {"version", "training", "bprop_debug", "initial_rate"}
_RANDOM = "random"


def save_state(
    file: File,
    net: Cell,
    optimiser: Optimizer,
    notes: dict[str, Any] | None = None,
    arrays: dict[str, Any] | None = None,
    loss: Callable[..., Any] | None = None,
) -> None:
    """Save a training to a safetensors file, from which `load_state` continues bit for bit.

    The file is replaced atomically. It contains the Parameters and buffers of net and loss, the step, rate and moments
    of the optimiser, and the random state. It also describes net, loss and optimiser, so that `load_state` can refuse
    others. It does not contain the states of a `Stateful`.

    Args:
        file: the path.
        net, optimiser: the trained net and its optimiser.
        notes: any JSON values.
        arrays: more NumPy arrays, by name.
        loss: the loss, if it is a Cell; a function has no state.
    """
    makes = _describe_parts(net, optimiser, loss)
    tensors = {f"net/{path}": p.asnumpy() for path, p in weights_of(net, loss).items()}
    tensors |= {f"buffer/{path}": buffer.asnumpy() for path, (_, _, buffer) in buffers_of(net, loss).items()}
    tensors |= {f"optimiser/{path}": p.asnumpy() for path, p in state_of(optimiser).items()}
    tensors |= {f"more/{name}": value for name, value in (arrays or {}).items()} | {_RANDOM: present_key().asnumpy()}
    text = {"writer": "snncell", "made": json.dumps(makes), "notes": json.dumps(notes or {})}
    write_arrays(file, {name: np.asarray(value) for name, value in tensors.items()}, text, "save_state")


def load_state(
    file: File,
    net: Cell,
    optimiser: Optimizer | None = None,
    expected: dict[str, Any] | None = None,
    loss: Callable[..., Any] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load a training saved by `save_state`: weights, optimiser and random numbers.

    Without an optimiser, only the Parameters and buffers of `net` are loaded, for example to make predictions.

    Args:
        file: the path.
        net, optimiser, loss: created like the saved ones.
        expected: notes that must be equal to the saved ones.
    Returns: The saved notes and arrays.
    Raises: CheckpointError if the file is missing, damaged, or of another net, optimiser, loss or notes, with the
        difference. Then nothing is loaded.
    """
    stored = read_state(file, net, optimiser, expected, loss)
    stored.load()
    return stored.notes, stored.arrays


def _by_last_names(make: Any) -> Any:
    """The description of an optimiser with only the last parts of its groups' names, as in older files."""
    result = make
    for path, facts in make.items() if isinstance(make, dict) else ():
        if isinstance(facts, dict) and isinstance(facts.get("names"), list):
            names = [str(name or "").rpartition(".")[2] for name in facts["names"]]
            result = {**result, path: {**facts, "names": names}}
    return result


def _comparable(cell: Cell, before: Any, now: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The descriptions of a Cell in a file and at present, without the differences between versions of this package.

    An older file may lack default settings and formerly private ones, and have settings that are now class attributes.
    """
    if not isinstance(before, dict):
        return before, now
    before, now = dict(before), dict(now)
    for path, inner in cell.cells_and_names():
        old, new, kind = before.get(path), now[path], type(inner)
        if isinstance(old, dict):
            defaults, private = _defaults(kind), getattr(kind, "_once_private", ())
            now[path] = {
                name: value
                for name, value in new.items()
                if name in old or not (name in private or _has_equal(defaults, name, value))
            }
            constants = {name: getattr(kind, name) for name in old if hasattr(kind, name)}
            before[path] = {
                name: value for name, value in old.items() if name in new or not _has_equal(constants, name, value)
            }
    return before, now


def _has_equal(settings: dict[str, Any], name: str, value: Any) -> bool:
    return name in settings and _plain(settings[name]) and json.dumps(settings[name]) == json.dumps(value)


def _defaults(kind: type) -> dict[str, Any]:
    """The default settings of a class of this package, or of the base class that a user's class derives from."""
    defaults: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] == __name__.partition(".")[0] and "__init__" in vars(base):
            for name, parameter in inspect.signature(base).parameters.items():
                defaults[name] = parameter.default
    return {name: value for name, value in defaults.items() if value is not inspect.Parameter.empty and _plain(value)}


class Stored(NamedTuple):
    """The checked content of a training's file."""

    notes: dict[str, Any]
    arrays: dict[str, Any]
    values: list[tuple[Parameter, Tensor]]
    buffers: list[tuple[Cell, str, Tensor]]
    random: tuple[int, int] | None

    def load(self) -> None:
        """Assign it to net, optimiser, loss and random numbers: all of it or, if interrupted, nothing."""
        seeds = [] if self.random is None else [assign_seed(*self.random)]
        assign_values([*self.values, *seeds], self.buffers, "load_state")
        if self.random is not None:
            set_seed(*self.random)  # for threads that start to draw later


def assign_values(
    values: Sequence[tuple[Parameter, Tensor]], buffers: Sequence[tuple[Cell, str, Tensor]], who: str
) -> None:
    """Assign values to Parameters and buffers: all of them or, if interrupted, none."""
    with together(written := Undo()):
        assign_all(values, who, in_range=True)
        replace_buffers(written, buffers)
        written.clear()


def read_state(
    file: File,
    net: Cell,
    optimiser: Optimizer | None,
    expected: dict[str, Any] | None = None,
    loss: Callable[..., Any] | None = None,
) -> Stored:
    """Read and check a file for `load_state`, without changing anything."""
    stored, text = read_arrays(file, "load_state")
    where = os.fspath(file)
    if not {"made", "notes"} <= text.keys() or _RANDOM not in stored:
        raise CheckpointError(
            f"load_state: {where} contains no training. If it contains weights, load them into a Cell by "
            f"snncell.load_checkpoint(file, net)."
        )
    makes, notes = (_from_json(text[name], f"load_state: {where}: {name}") for name in ("made", "notes"))
    now = _describe_parts(net, optimiser, loss) | (expected or {})
    if optimiser is None and loss is None:
        del now["loss"]
    before = {**notes, **makes}
    for what, cell in (("net", net), ("optimiser", optimiser), ("loss", loss)):
        if isinstance(cell, Cell):
            before[what], now[what] = _comparable(cell, before.get(what), now[what])
    for what, present in now.items():
        if (change := find_difference(_by_last_names(before.get(what)), _by_last_names(present))) is not None:
            name, old, new = change
            raise CheckpointError(
                f"load_state: {where} was written with another {what}: {name} was {old or 'missing'} and is "
                f"{new or 'missing'}. Use the same {what}, or start a new training (resume=False, or another file)."
            )
    arrays = {name.removeprefix("more/"): stored.pop(name) for name in list(stored) if name.startswith("more/")}
    random = refuse_misfit({_RANDOM: present_key()}, {_RANDOM: stored.pop(_RANDOM)}, f"load_state: {where}")[_RANDOM]
    if (random < 0).any():
        raise CheckpointError(f"load_state: {where} is damaged: {random.tolist()} is not a valid random state.")
    own: dict[str, Any] = {f"net/{path}": p for path, p in weights_of(net, loss).items()}
    if optimiser is None:
        others = ("optimiser/", *(("net/loss/", "buffer/loss/") if loss is None else ()))
        stored = {path: array for path, array in stored.items() if not path.startswith(others)}
    else:
        own |= {f"optimiser/{path}": p for path, p in state_of(optimiser).items()}
    buffers = {f"buffer/{path}": place for path, place in buffers_of(net, loss).items()}
    places = own | {path: buffer for path, (_, _, buffer) in buffers.items()}
    fitting = refuse_misfit(places, stored, f"load_state: {where}")
    values = [(own[path], Tensor(array)) for path, array in fitting.items() if path in own]
    kept = [(cell, name, Tensor(fitting[path])) for path, (cell, name, _) in buffers.items()]
    return Stored(notes, arrays, values, kept, None if optimiser is None else (int(random[0]), int(random[1])))


def refuse_misfit(
    own: dict[str, Any], stored: dict[str, Any], who: str, error: type[SnncellError] = CheckpointError
) -> dict[str, Any]:
    """Check that stored arrays match the Tensors in shapes and dtypes, and return them."""
    for path, want in own.items():
        have = stored.get(path)
        if have is None:
            raise error(f"{who} is damaged: {path!r} is missing.")
        if have.shape != want.shape or have.dtype != want.dtype.dtype:
            raise error(
                f"{who} is damaged: {path!r} is {have.dtype}{list(have.shape)} in it, not "
                f"{want.dtype.name}{list(want.shape)}."
            )
    for path in stored:
        if path not in own:
            raise error(f"{who} is damaged: {path!r} is not a known entry.")
    return stored


def _from_json(text: str, what: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
        _flat(content)  # raises if it is nested too deeply
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{what} is damaged: {error}.") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{what} is damaged: it is a {type(content).__name__}.")
    return content


def begin_pass(parts: Sequence[Any], training: bool) -> None:
    """Put all Cells of net and loss into training or evaluation mode, and reset the states of each `Stateful`."""
    for cell in cells_of(*parts):
        cell.training = training
    for stateful in find_statefuls(*parts):
        stateful.reset()


def weights_of(net: Cell, loss: Any = None) -> dict[str, Parameter]:
    """The Parameters of a net by path; if the loss is a Cell, its Parameters too, by "loss/" and path."""
    weights = dict(net.parameters_dict())
    of_loss = loss.parameters_dict() if isinstance(loss, Cell) else {}
    known = {id(parameter) for parameter in weights.values()}
    return weights | {f"loss/{path}": p for path, p in of_loss.items() if id(p) not in known}


def values_to_keep(net: Cell, loss: Any = None) -> dict[str, Tensor]:
    """The Parameters by path as in `weights_of`, and the buffers by "buffer/" and path."""
    return weights_of(net, loss) | {f"buffer/{path}": place[2] for path, place in buffers_of(net, loss).items()}


def restore_values(net: Cell, loss: Any, values: dict[str, Any], who: str) -> None:
    """Assign arrays to the Parameters and buffers of `values_to_keep`, by name."""
    own, buffers = weights_of(net, loss), buffers_of(net, loss)
    weights = [(own[path], Tensor(value)) for path, value in values.items() if path in own]
    kept = [(*buffers[path][:2], Tensor(values[f"buffer/{path}"])) for path in buffers if f"buffer/{path}" in values]
    assign_values(weights, kept, who)


def buffers_of(net: Cell, loss: Any = None) -> dict[str, tuple[Cell, str, Tensor]]:
    """The persistent buffers, with Cell and attribute, by path as in `weights_of`."""
    places = dict(net.kept_buffers())
    of_loss = loss.kept_buffers() if isinstance(loss, Cell) else {}
    places |= {f"loss/{path}": place for path, place in of_loss.items() if place not in places.values()}
    return {path: (cell, name, vars(cell)[name]) for path, (cell, name) in places.items()}


def _describe_parts(net: Cell, optimiser: Optimizer | None, loss: Any) -> dict[str, Any]:
    """Describe net, optimiser and loss; a loss that is a function has an empty description."""
    parts = {"net": net, "loss": loss} if optimiser is None else {"net": net, "optimiser": optimiser, "loss": loss}
    return {name: describe_cell(part) if isinstance(part, Cell) else {} for name, part in parts.items()}


def state_of(optimiser: Optimizer) -> dict[str, Parameter]:
    """The state of an optimiser: its Parameters except those that it trains."""
    trained = {id(parameter) for parameter in optimiser.parameters}
    return {path: p for path, p in optimiser.parameters_dict().items() if id(p) not in trained}


def describe_cell(cell: Cell) -> dict[str, Any]:
    """Describe a Cell and its descendants: classes, settings, constants, shapes and dtypes of Parameters."""
    facts: dict[str, Any] = {}
    for path, inner in cell.cells_and_names():
        facts[path] = {"class": type(inner).__name__} | {
            name: value
            for name, value in vars(inner).items()
            if name not in _INTERNAL and _plain(value) and not name.startswith("_")
        }
        changing = inner.kept_buffers()  # the file contains their values, which may have changed
        for name, value in vars(inner).items():
            several = enumerate(value) if isinstance(value, (tuple, list)) else ()
            for label, item in [(name, value), *((f"{name}.{n}", item) for n, item in several)]:
                if isinstance(item, (Tensor, np.ndarray)) and not isinstance(item, Parameter) and label not in changing:
                    facts[path][label] = describe_array(np.asarray(item))
    for path, p in cell.parameters_dict().items():
        facts[f"Parameter {path}"] = f"{p.dtype.name}{list(p.shape)}"
    groups: list[Any] = list(cell.groups) if isinstance(cell, Optimizer) else []
    for number, group in enumerate(groups):
        if group.schedule is None:  # use the initial rate, because a callback may have changed the present one
            facts["learning_rate" + (f" of group {number}" if len(groups) > 1 else "")] = group.initial_rate
    return facts


def describe_array(array: Any) -> list[Any]:
    """Describe an array by shape, dtype and a hash of its elements."""
    return [list(array.shape), str(array.dtype), hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()]


def _plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return bool(value) and all(map(_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def find_difference(one: Any, other: Any) -> tuple[str, str | None, str | None] | None:
    """The path of the first difference between two nested dicts, and both values; None for a missing value."""
    old, new = _flat(one), _flat(other)
    for path in [*new, *(path for path in old if path not in new)]:
        if old.get(path) != new.get(path):
            return re.sub(r"^\W+", "", path) or "it", old.get(path), new.get(path)
    return None


def _flat(tree: Any, path: str = "") -> dict[str, str]:
    if not isinstance(tree, dict):
        return {path: json.dumps(tree)}
    return {where: text for key, value in tree.items() for where, text in _flat(value, f"{path}.{key}").items()}


def saved_numbers(state: dict[str, Any], names: Sequence[str], who: str) -> list[Any]:
    """The numbers in the saved state of a callback, by name; an ArgumentError for any other state."""
    if state.keys() != set(names) or not all(is_number(number) and number == number for number in state.values()):
        raise ArgumentError(f"{who}: the saved state {str(state)[:200]} is not valid.")
    return [state[name] for name in names]


def is_number(value: Any) -> bool:
    """True for a JSON number."""
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)


def is_count(value: Any) -> bool:
    """True for an integer of at least 0."""
    return isinstance(value, int) and is_number(value) and value >= 0
