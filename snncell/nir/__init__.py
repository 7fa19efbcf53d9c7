"""NIR, the Neuromorphic Intermediate Representation: import and export networks of other frameworks and chips.

It needs the packages nir and h5py: pip install snncell[nir]. `from_nir` makes a Cell, `to_nir` makes a graph. `Scale`,
`Heaviside` and `Delay` are layers for NIR nodes that `snncell.nn` has no layer for.
"""

from snncell.base.arguments.guard import guard as _guard
from snncell.nir.layers import Delay as Delay, Heaviside as Heaviside, Scale as Scale
from snncell.nir.reading import Net as Net, from_nir as from_nir
from snncell.nir.writing import losses as losses, to_nir as to_nir

_guard(globals())
