"""Initialisers (`common.initializer`), and other names that MindSpore exports from `mindspore.common`."""

from snncell import dtype as dtype
from snncell.ops.random import get_seed as get_seed, set_seed as set_seed
from snncell.tape.parameter import Parameter as Parameter, ParameterTuple as ParameterTuple
from snncell.tape.tensor import Tensor as Tensor
