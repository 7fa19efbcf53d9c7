"""Networks to and from other frameworks and neuromorphic chips, by NIR, the Neuromorphic Intermediate Representation.

from_nir                    a Cell of a file, or of a graph of the package nir
Net                         what it makes
to_nir, losses              a graph of a Cell, and what of the Cell is not in it
Scale, Heaviside, Delay     NIR's nodes that `snncell.nn` has no layer for

It needs the packages nir and h5py: pip install snncell[nir].
"""

from snncell.base.arguments.guard import guard as _guard
from snncell.nir.layers import Delay as Delay, Heaviside as Heaviside, Scale as Scale
from snncell.nir.reading import Net as Net, from_nir as from_nir
from snncell.nir.writing import losses as losses, to_nir as to_nir

_guard(globals())
