"""Files: checkpoints."""

from snncell.io.checkpoint import load_checkpoint as load_checkpoint
from snncell.io.checkpoint import load_param_into_net as load_param_into_net
from snncell.io.checkpoint import save_checkpoint as save_checkpoint
