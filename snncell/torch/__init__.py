"""A Cell as a PyTorch module: swap the neuron of a PyTorch, SpikingJelly or snnTorch script for a compiled one.

It needs PyTorch, `pip install "snncell[torch]"`. `import snncell` does not load this module, so import it by name:
`from snncell.torch import fused`.
"""

from snncell.base.arguments.guard import guard as _guard
from snncell.base.signals import import_once as _imported
from snncell.errors import PackageError

if __name__ != "snncell.torch":  # Python runs in the folder of snncell, and so takes this folder for PyTorch
    raise PackageError(
        "snncell/torch was imported instead of PyTorch, because Python looks into the folder of snncell first. Start "
        "Python in another folder, and run modules of snncell by python -m."
    )
try:
    _imported("torch")
except ImportError as _error:
    raise PackageError(
        f'snncell.torch: needs PyTorch. Install it with pip install "snncell[torch]", or for the CPU only with '
        f"pip install torch --index-url https://download.pytorch.org/whl/cpu ({_error})."
    ) from None

from snncell.torch.module import fused as fused

_guard(globals())
