"""Activations by their names, as layers take them."""

from __future__ import annotations

from typing import Any

from snncell.errors import ArgumentError
from snncell.nn.activation import (
    GELU,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
    Tanhshrink,
)
from snncell.nn.rectifiers import ELU, Hardtanh, HShrink, HSigmoid, HSwish, PReLU, SeLU, SoftShrink

_BY_NAME: dict[str, Any] = {
    "relu": ReLU,
    "relu6": ReLU6,
    "leakyrelu": LeakyReLU,
    "gelu": GELU,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
    "softplus": Softplus,
    "softmax": Softmax,
    "logsoftmax": LogSoftmax,
    "elu": ELU,
    "selu": SeLU,
    "silu": SiLU,
    "swish": SiLU,
    "mish": Mish,
    "prelu": PReLU,
    "hardtanh": Hardtanh,
    "hsigmoid": HSigmoid,
    "hswish": HSwish,
    "hshrink": HShrink,
    "softshrink": SoftShrink,
    "softsign": Softsign,
    "logsigmoid": LogSigmoid,
    "tanhshrink": Tanhshrink,
}


def activation_of(activation: Any, who: str) -> Any:
    """An activation by name, or as it is."""
    if not isinstance(activation, str):
        return activation
    if activation not in _BY_NAME:
        raise ArgumentError(f"{who}: no activation {activation!r}; there are {', '.join(sorted(_BY_NAME))}.")
    return _BY_NAME[activation]()
