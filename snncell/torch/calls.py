"""Compiled calls of a Cell for PyTorch: a torch.autograd.Function, and custom operators that torch.compile can trace.

The Parameters of the Cell share the memory of torch tensors.

Both run the same two kernels. The custom operators are for torch.compile only, because a call takes about 60 us more.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from snncell.base.config import FINITE
from snncell.compiler.compiled import Compiled
from snncell.compiler.jit import Jitted
from snncell.errors import ArgumentError, DeviceError, DTypeError, GradientError, ShapeError, TraceError
from snncell.ops import stop_gradient
from snncell.tape import structure
from snncell.tape.parameter import Parameter
from snncell.tape.state import TRACING, Tape, recording_on
from snncell.tape.tensor import Tensor, wrap

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32,
    torch.int64,
)  # fmt: skip


def array_of(x: Any) -> Any:
    """A torch tensor as a NumPy array in the same memory."""
    return x.detach().numpy()


def check_tensor(x: Any, what: str) -> None:
    """Raise a DeviceError or DTypeError for a torch tensor that cannot be a NumPy array."""
    if x.device.type != "cpu" or x.layout is not torch.strided:
        place = f"on the device {x.device}" if x.device.type != "cpu" else f"stored as {x.layout}"
        raise DeviceError(
            f"{what} is {place}, but fused modules compute with dense tensors on the CPU. Convert it by "
            f"{'.to_dense()' if x.device.type == 'cpu' else '.cpu()'}, and keep the fused module on the CPU."
        )
    if x.dtype not in DTYPES:
        raise DTypeError(
            f"{what} has dtype {x.dtype}, which fused modules do not take. Convert it by .float() or .double(); under "
            f"torch.autocast, call the module in a block with torch.autocast('cpu', enabled=False)."
        )


class SharedParameters:
    """The Parameters of a Cell, with their values in the memory of torch tensors."""

    def __init__(self, name: str, parameters: Sequence[Parameter]) -> None:
        self.name, self.parameters = name, list(parameters)
        self.numbers = {id(p): n for n, p in enumerate(self.parameters)}
        self.tensors: list[Any] = [None] * len(self.parameters)
        # For each Parameter its array, the address of its tensor, and the tensor's version.
        self.seen: list[tuple[Any, int, int]] = [(None, 0, -1)] * len(self.parameters)
        self.outdated = False  # True if compiled calls are out of date, because a Parameter has another dtype

    def number_of(self, parameter: Parameter) -> int:
        """The position of a Parameter; an error if it does not belong to the Cell."""
        number = self.numbers.get(id(parameter))
        if number is None:
            raise GradientError(
                f"fused({self.name}): the Cell computes with Parameter {parameter.name!r}, which is not an attribute "
                f"of it, so PyTorch cannot train it. Set it as an attribute, or freeze it by requires_grad = False."
            )
        return number

    def bind(self, tensors: Sequence[Any], trained: Sequence[bool] = ()) -> None:
        """Make the Parameters views of these tensors, after copying values written to the Parameters since the last
        call to the tensors. `trained` has the new values of `requires_grad`, or is empty.
        """
        for number, (parameter, tensor) in enumerate(zip(self.parameters, tensors, strict=True)):
            array, address, version = self.seen[number]
            if array is not None and parameter._data is not array:
                _write(tensor, parameter._data)
            if address != tensor.data_ptr() or parameter._data is not array:
                array = self._view(parameter, tensor)
            self.tensors[number] = tensor
            present = tensor._version if parameter.limits and not tensor.is_inference() else 0
            if parameter.limits and version != present:
                value = parameter._project(wrap(array))._data
                if not np.array_equal(value, array):
                    _write(tensor, value)
                    present += 1
            self.seen[number] = array, tensor.data_ptr(), present
        for parameter, gradient in zip(self.parameters, trained, strict=False):
            if parameter.requires_grad != gradient:
                parameter.requires_grad = gradient

    def _view(self, parameter: Parameter, tensor: Any) -> Any:
        what = f"fused({self.name}): Parameter {parameter.name!r}"
        check_tensor(tensor, what)
        array = array_of(tensor)
        if array.shape != parameter.shape:
            raise ShapeError(f"{what} has shape {parameter.shape}, but its torch tensor has {array.shape}.")
        if array.dtype == parameter._data.dtype:
            parameter._data = array
            return array
        self.outdated, trained = True, parameter.requires_grad
        parameter.requires_grad = False  # because its place on the tape has the old dtype
        parameter._data = array
        parameter.requires_grad = trained
        return array

    def publish(self) -> None:
        """Copy values that the Cell has written, such as statistics of BatchNorm, to the torch tensors."""
        for number, (parameter, (array, _, _)) in enumerate(zip(self.parameters, self.seen, strict=True)):
            if parameter._data is not array:
                tensor = self.tensors[number]
                _write(tensor, parameter._data)
                parameter._data = array


def _write(tensor: Any, value: Any) -> None:
    with torch.no_grad():
        tensor.copy_(torch.from_numpy(np.array(value)))


_next_key = itertools.count(1).__next__
Flags = Sequence[bool]  # for each input and each Parameter, whether a gradient is wanted


class CompiledCalls:
    """The compiled calls of one Cell, traced once for each combination of shapes, dtypes and wanted gradients. Custom
    operators take only tensors, numbers and strings, so they find this object by its `key`.
    """

    by_key: ClassVar[weakref.WeakValueDictionary[int, CompiledCalls]] = weakref.WeakValueDictionary()

    def __init__(self, name: str, call: Callable[..., Any], shared: SharedParameters) -> None:
        self.name, self.call, self.shared = name, call, shared
        self.jitted: dict[Flags, Jitted] = {}  # by the wanted gradients of inputs
        self.structure: Any = None  # of the result of the last call, with a number in place of each Tensor
        self._last: Compiled | None = None
        self.key = _next_key()
        self.by_key[self.key] = self

    def look_up(self, leaves: Sequence[Tensor], wanted: Flags, taped: bool) -> Compiled:
        """Find or trace the call for inputs of these shapes and dtypes."""
        if FINITE or TRACING.unfused:
            raise ArgumentError(
                f"fused({self.name}): check_finite=True and testing.unfused() see the operations of Cells only. Call "
                f"the Cell itself: module.snncell(snncell.Tensor(x))."
            )
        if self.shared.outdated:  # a Parameter has another dtype
            self.jitted.clear()
            self.shared.outdated = False
        wanted = tuple(wanted[: len(leaves)])
        jitted = self.jitted.get(wanted) or self.jitted.setdefault(wanted, self._new_jitted(wanted))
        with recording_on(Tape() if taped else None):
            compiled = jitted.lookup(tuple(leaves), {})[0]
        if compiled.hooks:
            raise GradientError(
                f"fused({self.name}): the Cell registers a hook on its own input, which PyTorch would not call. Use "
                f"x.register_hook of PyTorch instead."
            )
        if compiled is not self._last:
            number = len(compiled.vjp.outs if compiled.vjp else compiled.traced.outputs) - len(compiled.noted.extra)
            self._last, self.structure = compiled, structure.unflatten(compiled.structure_of_out, range(number))
        return compiled

    def _new_jitted(self, wanted: Flags) -> Jitted:
        call = self.call

        def run(*inputs: Tensor) -> Any:
            return call(*[x if want else stop_gradient(x) for x, want in zip(inputs, wanted, strict=True)])

        return Jitted(run, self.name)

    def run(self, inputs: Sequence[Any], parameters: Sequence[Any]) -> list[Any]:
        """The results without a gradient."""
        self.shared.bind(parameters)
        leaves = [wrap(array_of(x)) for x in inputs]
        compiled = self.look_up(leaves, (False,) * len(inputs), taped=False)
        arrays = [x._data for x in leaves]
        results = [wrap(x) for x in compiled.plan(arrays).replay_unshared(arrays)]
        return [torch.from_numpy(x._data) for x in self._publish(compiled, results)]

    def forward(
        self, wanted: Flags, inputs: Sequence[Any], parameters: Sequence[Any]
    ) -> tuple[Compiled, list[Any], list[Any]]:
        """The results, with those for monitors, and the residuals for the backward pass."""
        self.shared.bind(parameters, wanted[len(inputs) :])
        leaves = [wrap(array_of(x)) for x in inputs]
        compiled = self.look_up(leaves, wanted, taped=True)
        assert compiled.vjp is not None
        every, number = compiled.vjp.forward(leaves), len(compiled.vjp.outs)
        self._publish(compiled, every[:number])
        tensors = [torch.from_numpy(x._data) for x in every]
        return compiled, tensors[:number], tensors[number:]

    def _publish(self, compiled: Compiled, results: Sequence[Tensor]) -> Sequence[Tensor]:
        """Pass results to monitors and written values to PyTorch; return the Cell's own results."""
        self.shared.publish()
        return compiled.noted.pass_on(results, {}) if compiled.noted.positions else results

    def stored(
        self, compiled: Compiled, inputs: Sequence[Any], parameters: Sequence[Any], results: Sequence[Any]
    ) -> list[Any]:
        """The tensors that the backward pass needs, and None for the others. `results` include the residuals."""
        assert compiled.vjp is not None
        trained = [parameters[self.shared.number_of(p)] for p in compiled.vjp.trainable]
        every = [*inputs, *trained, *results]
        return [x if need else None for x, need in zip(every, compiled.vjp.needed(), strict=True)]

    def backward(self, compiled: Compiled, stored: Sequence[Any], douts: Sequence[Any]) -> list[Any]:
        """The gradients of inputs and Parameters from those of the results, with None for a missing one."""
        vjp = compiled.vjp
        assert vjp is not None
        douts = [*douts, *[None] * (len(vjp.outs) - len(douts))]  # none of the results for monitors
        found = vjp.backward(*[[None if x is None else wrap(array_of(x)) for x in part] for part in (stored, douts)])
        grads = [None if grad is None else torch.from_numpy(grad._data) for grad in found]
        inputs = len(grads) - len(vjp.trainable)
        of_parameters: list[Any] = [None] * len(self.shared.parameters)
        for parameter, grad in zip(vjp.trainable, grads[inputs:], strict=True):
            of_parameters[self.shared.number_of(parameter)] = grad
        return [*grads[:inputs], *of_parameters]


class CallFunction(torch.autograd.Function):  # type: ignore[misc]
    """A call in eager mode."""

    @staticmethod
    def forward(ctx: Any, calls: CompiledCalls, count: int, wanted: Flags, *tensors: Any) -> Any:
        """The results of the Cell for `count` inputs, followed by all Parameters."""
        inputs, parameters = tensors[:count], tensors[count:]
        compiled, results, residuals = calls.forward(wanted, inputs, parameters)
        ctx.calls, ctx.compiled = calls, compiled
        ctx.save_for_backward(*calls.stored(compiled, inputs, parameters, [*results, *residuals]))
        ctx.set_materialize_grads(False)
        return tuple(results[: len(results) - len(compiled.noted.extra)])

    @staticmethod
    def backward(ctx: Any, *douts: Any) -> Any:
        """The gradients of inputs and Parameters."""
        if torch.is_grad_enabled():
            # The decorator once_differentiable is not enough: torch.autograd.grad with inputs would leave out the
            # second-order gradients without an error.
            raise GradientError(
                f"fused({ctx.calls.name}): there is no second-order gradient, so create_graph must be False. For it, "
                f"take gradients of the Cell, module.snncell, by snncell.grad."
            )
        return None, None, None, *ctx.calls.backward(ctx.compiled, ctx.saved_tensors, douts)


# --- torch.compile ----------------------------------------------------------------------------------------------------


def _specs_of(inputs: Sequence[Any]) -> str:
    """Dtypes and shapes as text, which a custom operator takes as a constant."""
    return ";".join(" ".join([str(x.dtype).removeprefix("torch."), *(str(int(n)) for n in x.shape)]) for x in inputs)


def _read_specs(specs: str) -> list[tuple[tuple[int, ...], Any]]:
    parts = (spec.split(" ") for spec in specs.split(";"))
    return [(tuple(map(int, shape)), kind) for kind, *shape in parts]


def _pure_call(key: int, specs: str, wanted: Flags) -> tuple[CompiledCalls, Compiled]:
    """The call for inputs with the dtypes and shapes of `specs`."""
    calls = CompiledCalls.by_key[key]
    leaves = [wrap(np.broadcast_to(np.zeros((), kind), shape)) for shape, kind in _read_specs(specs)]
    # While torch.compile traces with fake tensors, PyTorch's random state is one too.
    with _disable_current_modes():
        compiled = calls.look_up(leaves, wanted, taped=any(wanted))
        if compiled.vjp is not None:
            compiled.vjp.needed()  # traces the backward pass
    if compiled.noted.positions:
        raise TraceError(
            f"fused({calls.name}): a monitor records the Cell, which torch.compile cannot. Compile it later."
        )
    if compiled.vjp.trace.written if compiled.vjp else compiled.traced.written:
        raise TraceError(
            f"fused({calls.name}): the Cell draws random numbers or updates statistics, so torch.compile could run it "
            f"twice or not at all. Leave it out of the compiled graph: net.layer = torch.compiler.disable(net.layer)."
        )
    return calls, compiled


def _empty(shape: Sequence[int], dtype: Any) -> Any:
    return torch.empty(tuple(shape), dtype=torch.from_numpy(np.empty(0, dtype)).dtype)


def _forward(
    key: int, wanted: list[bool], inputs: list[torch.Tensor], parameters: list[torch.Tensor]
) -> list[torch.Tensor]:
    """The results of a call, then the residuals if a gradient is wanted."""
    calls, _ = _pure_call(key, _specs_of(inputs), wanted)
    if not any(wanted):
        return calls.run(inputs, parameters)
    _, results, residuals = calls.forward(wanted, inputs, parameters)
    return [*results, *residuals]


def _forward_shapes(key: int, wanted: Any, inputs: Any, parameters: Any) -> list[Any]:
    _, compiled = _pure_call(key, _specs_of(inputs), wanted)
    vjp = compiled.vjp
    values = [x._data for x in (*vjp.outs, *vjp.residuals(1))] if vjp else compiled.traced.outputs
    return [_empty(*value.spec) for value in values]


def _backward(
    key: int, specs: str, wanted: list[bool], stored: list[torch.Tensor | None], douts: list[torch.Tensor | None]
) -> list[torch.Tensor]:
    """The wanted gradients of inputs and Parameters."""
    calls, compiled = _pure_call(key, specs, wanted)
    grads = calls.backward(compiled, stored, douts)
    pairs = zip(grads, wanted, _backward_shapes(key, specs, [True] * len(grads), stored, douts), strict=True)
    return [empty.zero_() if grad is None else grad for grad, want, empty in pairs if want]


def _backward_shapes(key: int, specs: str, wanted: Any, stored: Any, douts: Any) -> list[Any]:
    every = _read_specs(specs) + [(p.shape, p._data.dtype) for p in CompiledCalls.by_key[key].shared.parameters]
    return [_empty(*spec) for spec, want in zip(every, wanted, strict=True) if want]


def _set_up_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    key, wanted, tensors, parameters = inputs
    ctx.key, ctx.wanted, ctx.specs, ctx.counts = key, wanted, _specs_of(tensors), (len(tensors), len(parameters))
    calls, compiled = _pure_call(key, ctx.specs, wanted)
    ctx.set_materialize_grads(False)
    if compiled.vjp is not None:
        ctx.results = len(compiled.vjp.outs)
        ctx.save_for_backward(*calls.stored(compiled, tensors, parameters, output))


def _pull(ctx: Any, douts: Sequence[Any]) -> Any:
    stored, of_results = [*ctx.saved_tensors], [*douts[: ctx.results]]
    grads = iter(backward_operator(ctx.key, ctx.specs, ctx.wanted, stored, of_results))
    every = [next(grads) if want else None for want in ctx.wanted]
    return None, None, every[: ctx.counts[0]], every[ctx.counts[0] :]


forward_operator: Any = torch.library.custom_op("snncell::forward", _forward, mutates_args=())
backward_operator: Any = torch.library.custom_op("snncell::backward", _backward, mutates_args=())
forward_operator.register_fake(_forward_shapes)
backward_operator.register_fake(_backward_shapes)
forward_operator.register_autograd(_pull, setup_context=_set_up_backward)
