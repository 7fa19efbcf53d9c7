"""A Cell as a PyTorch module: swap the neuron of a PyTorch, SpikingJelly or snnTorch script for a compiled one.

Import it by `from snncell.torch import fused`. A call of `fused` needs PyTorch: `pip install "snncell[torch]"`.
"""

from snncell.base.arguments.guard import guard as _guard
from snncell.errors import PackageError

if __name__ != "snncell.torch":
    raise PackageError(
        "snncell/torch was imported instead of PyTorch, because Python looks into the folder of snncell first. Start "
        "Python in another folder, and run modules of snncell by python -m."
    )

from snncell.torch.fusing import fused as fused

_guard(globals())
