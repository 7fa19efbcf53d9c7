"""Files: checkpoints."""

from snncell.base.arguments.guard import guard as _guard
from snncell.io.checkpoint import (
    load_checkpoint as load_checkpoint,
    load_param_into_net as load_param_into_net,
    save_checkpoint as save_checkpoint,
)

_guard(globals())
