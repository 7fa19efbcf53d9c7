"""Automatic mixed precision (AMP): products in float16 or bfloat16 with float32 weights, and loss scaling.

auto_mixed_precision                   which layers compute in fewer bits
StaticLossScaler, DynamicLossScaler    a factor of the loss that lifts small gradients over the smallest float16
LossScaler                             their base
all_finite, step_if                    for a training loop of your own; `train.fit(loss_scale=...)` includes both

Names are those of `mindspore.amp`.
"""

from snncell.amp.layers import auto_mixed_precision as auto_mixed_precision
from snncell.amp.scaling import (
    DynamicLossScaler as DynamicLossScaler,
    LossScaler as LossScaler,
    StaticLossScaler as StaticLossScaler,
    all_finite as all_finite,
    step_if as step_if,
)
from snncell.base.arguments.guard import guard as _guard

_guard(globals())
