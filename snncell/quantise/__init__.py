"""Quantisation-aware training."""

from snncell.quantise.levels import Binary as Binary, PowerOfTwo as PowerOfTwo, Ternary as Ternary
from snncell.quantise.quantiser import Quantiser as Quantiser
from snncell.quantise.uniform import FixedPoint as FixedPoint, Uniform as Uniform
from snncell.quantise.prepare import prepare as prepare, restore as restore
from snncell.quantise.export import export as export
from snncell.quantise.net import IntegerNet as IntegerNet
