"""MindSpore keeps its initialisers under this name, and what they are made of."""

from snncell import dtype as dtype
from snncell.ops.random import get_seed as get_seed, set_seed as set_seed
from snncell.tape.parameter import Parameter as Parameter, ParameterTuple as ParameterTuple
from snncell.tape.tensor import Tensor as Tensor
