"""State dicts of Cells: Parameters, buffers, and extra state of a class."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from snncell.base.arguments.shown import came
from snncell.cell.hooks import Hook, HookHandle
from snncell.cell.tree import Tree
from snncell.errors import ArgumentTypeError, CheckpointError, MissingNameError
from snncell.tape.parameter import Parameter, assign_all, fits, together
from snncell.tape.state import Undo
from snncell.tape.tensor import Tensor, wrap

_EXTRA = "_extra_state"


class IncompatibleKeys(NamedTuple):
    """The result of `load_state_dict`: paths that only the Cell has, and paths that only the state has."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class HasState(Tree):
    """The part of Cell that saves and loads its state as a dict."""

    _state_hooks: Any = MappingProxyType({})
    _state_pre_hooks: Any = MappingProxyType({})
    _load_hooks: Any = MappingProxyType({})
    _load_pre_hooks: Any = MappingProxyType({})

    # --- buffers ------------------------------------------------------------------------------------------------------

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Register a buffer: a Tensor attribute that is saved with the state but not trained.

        You can replace it by setting the attribute, outside of traced functions. For a value that changes inside a
        traced function, use a Parameter with requires_grad=False and `ops.assign`.

        Args:
            name: the attribute, which must be free or a buffer.
            tensor: its value, or None.
            persistent: whether `state_dict` and checkpoints contain it.
        """
        who = "register_buffer"
        if name not in self._buffers:
            self._refuse_name(name, type(None), who, "name")
        if isinstance(tensor, Parameter) or not (tensor is None or isinstance(tensor, Tensor)):
            raise ArgumentTypeError(f"{who}: tensor is a Tensor or None, not {came(tensor)}.")
        self.__dict__["_buffers"] = {**self._buffers, name: persistent}
        setattr(self, name, tensor)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Iterate over the buffers that are not None, with their attribute paths.

        Args:
            prefix: the beginning of each path.
            recurse: whether to include the buffers of descendants.
            remove_duplicate: whether a Tensor that is several buffers comes once.
        """
        seen: set[int] = set()
        for path, cell in self.cells_and_names(name_prefix=prefix) if recurse else [(prefix, self)]:
            for name in cell._buffers:
                tensor = cell.__dict__[name]
                if tensor is not None and not (remove_duplicate and id(tensor) in seen):
                    seen.add(id(tensor))
                    yield (f"{path}.{name}" if path else name), tensor

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Iterate over the buffers that are not None."""
        for _, tensor in self.named_buffers(recurse=recurse):
            yield tensor

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path; an unknown path is a MissingNameError."""
        path, _, name = target.rpartition(".")
        cell = self.get_sub_cell(path)
        if name not in cell._buffers:
            raise MissingNameError(f"get_buffer: {type(cell).__name__} has no buffer {name!r}.")
        tensor: Tensor = cell.__dict__[name]
        return tensor

    def kept_buffers(self) -> dict[str, tuple[Any, str]]:
        """The Cell and the attribute name of each persistent buffer, by path."""
        return {
            f"{path}.{name}" if path else name: (cell, name)
            for path, cell in self.cells_and_names()
            for name, kept in cell._buffers.items()
            if kept and cell.__dict__[name] is not None
        }

    # --- extra state --------------------------------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        """Override this together with `set_extra_state` to save further state, such as a Python counter."""
        raise MissingNameError(f"{type(self).__name__} has no extra state: it defines no get_extra_state.")

    def set_extra_state(self, state: Any) -> None:
        """Override this to load the result of `get_extra_state`."""
        raise MissingNameError(f"{type(self).__name__} cannot load extra state: it defines no set_extra_state.")

    # --- as a dict ----------------------------------------------------------------------------------------------------

    def state_dict(
        self, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """A dict of all Parameters and persistent buffers by attribute path, without copies.

        A shared Parameter is in it once. Hooks of `register_state_dict_post_hook` may change the dict.

        Args:
            destination: a dict to add them to. Default: a new OrderedDict.
            prefix: the beginning of each path.
            keep_vars: accepted without effect.
        """
        found: dict[str, Any] = OrderedDict() if destination is None else destination
        seen: set[int] = set()
        cells = [(f"{prefix}{path}." if path else prefix, cell) for path, cell in self.cells_and_names()]
        for path, cell in cells:
            for hook in cell._state_pre_hooks.values():
                hook.function(cell, path, keep_vars)
            kept = [(name, cell.__dict__[name]) for name, kept in cell._buffers.items() if kept]
            for name, member in [*cell._members(), *kept]:
                if isinstance(member, Tensor) and id(member) not in seen:
                    seen.add(id(member))
                    found[path + name] = member
            if _defines(cell, "get_extra_state"):
                found[path + _EXTRA] = cell.get_extra_state()
        for path, cell in reversed(cells):
            for hook in cell._state_hooks.values():
                hook.function(cell, found, path, {})
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Load Parameters and buffers by attribute path. If one of them does not fit, nothing is loaded.

        Args:
            state_dict: the result of `state_dict` or `load_checkpoint`; values are Tensors or arrays.
            strict: whether the Cell and the dict must have exactly the same paths.
        Returns: The paths that only the Cell has, and the paths that only the dict has.
        """
        if not isinstance(state_dict, Mapping):
            raise ArgumentTypeError(f"load_state_dict: state_dict is a dict, not {came(state_dict)}.")
        given, faults, keys = dict(state_dict), list[str](), IncompatibleKeys([], [])
        cells = [(f"{path}." if path else "", cell) for path, cell in self.cells_and_names()]
        for prefix, cell in cells:
            for hook in cell._load_pre_hooks.values():
                hook.function(cell, given, prefix, {}, strict, *keys, faults)
        parameters, buffers, extras = self._state_places(given, keys)
        values = [(p, _convert_value(path, given[path], p, faults)) for path, p in parameters]
        replaced = [
            (cell, name, _convert_value(path, given[path], vars(cell)[name], faults)) for path, cell, name in buffers
        ]
        if faults:
            raise CheckpointError(f"load_state_dict: {type(self).__name__}: {' '.join(faults)}")
        with together(written := Undo()):
            assign_all([(p, value) for p, value in values if value is not None], "load_state_dict")
            replace_buffers(written, [(cell, name, value) for cell, name, value in replaced if value is not None])
            for cell in [cell for _, cell in reversed(cells)]:
                for hook in cell._load_hooks.values():
                    hook.function(cell, keys)
            if strict and (keys.missing_keys or keys.unexpected_keys):
                raise CheckpointError(
                    f"load_state_dict: the state does not fit {type(self).__name__}. Not in the state: "
                    f"{keys.missing_keys or 'nothing'}; not in the Cell: {keys.unexpected_keys or 'nothing'}."
                )
            for path, cell in extras:
                cell.set_extra_state(given[path])
            written.clear()
        return keys

    def _state_places(self, given: dict[str, Any], keys: IncompatibleKeys) -> tuple[Any, Any, Any]:
        """Match the paths in a state with Parameters, buffers and extra state; add paths without a match to `keys`."""
        parameters = [(path, p) for path, p in self.parameters_and_names() if path in given]
        found = {path for path, _ in parameters}
        for path in [path for path in given if path not in found]:  # perhaps another path to a shared Parameter
            owner, _, name = path.rpartition(".")  # the owner's path may go through a list
            with suppress(MissingNameError):
                member = dict(self.get_sub_cell(owner)._members()).get(name)
                if isinstance(member, Parameter):
                    parameters.append((path, member))
        known = {id(p) for _, p in parameters}
        missing = [path for path, p in self.parameters_and_names() if id(p) not in known]
        kept = self.kept_buffers()
        buffers = [(path, *place) for path, place in kept.items() if path in given]
        missing += [path for path in kept if path not in given]
        extras = [
            (f"{path}.{_EXTRA}" if path else _EXTRA, cell)
            for path, cell in self.cells_and_names()
            if _defines(cell, "set_extra_state")
        ]
        missing += [path for path, _ in extras if path not in given]
        extras = [(path, cell) for path, cell in extras if path in given]
        places = {path for path, *_ in [*parameters, *buffers, *extras]}
        keys.missing_keys.extend(missing)
        keys.unexpected_keys.extend(path for path in given if path not in places)
        return parameters, buffers, extras

    # --- hooks --------------------------------------------------------------------------------------------------------

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(cell, prefix, keep_vars)` before `state_dict` reads the Cell."""
        return HookHandle(self, "_state_pre_hooks", Hook(hook))

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(cell, state_dict, prefix, {})` at the end of `state_dict`; it may change the dict."""
        return HookHandle(self, "_state_hooks", Hook(hook))

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(cell, state_dict, prefix, {}, strict, missing_keys, unexpected_keys, errors)` before loading. The
        hook may change the dict, which is a copy, and append to the lists. Texts in `errors` are raised.
        """
        return HookHandle(self, "_load_pre_hooks", Hook(hook))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(cell, incompatible_keys)` after loading; it may change the lists before `strict` checks them."""
        return HookHandle(self, "_load_hooks", Hook(hook))


def replace_buffers(written: Undo, values: Iterable[tuple[Any, str, Tensor]]) -> None:
    """Set buffers to copies of values that fit; call it within `together(written)`."""
    for cell, name, value in values:
        before = vars(cell)[name]
        written.note([(cell, name, before)])
        setattr(cell, name, wrap(value._copied(before.dtype, before.device, name)))


def _defines(cell: Any, name: str) -> bool:
    return getattr(type(cell), name) is not getattr(HasState, name)


def _convert_value(path: str, value: Any, place: Any, faults: list[str]) -> Tensor | None:
    """Convert a value for its place in the Cell; if it does not fit, append the reason to `faults` and return None."""
    try:
        tensor = value if isinstance(value, Tensor) else Tensor(value)
    except (TypeError, ValueError):
        faults.append(f"{path!r} is {came(value)}, not a Tensor.")
        return None
    if tensor.shape == place.shape and fits(tensor.dtype, place.dtype):
        return tensor
    faults.append(
        f"{path!r} is {tensor.dtype}{list(tensor.shape)} in the state and {place.dtype}{list(place.shape)} in the Cell."
    )
    return None
