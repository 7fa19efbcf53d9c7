"""Gradient checks: compare gradients and custom gradients with finite differences, for you and for snncell's own tests.

All checks compute in float64, where an error of 0.1 % in a gradient is much larger than rounding. A check returns a
result to print. If a gradient is wrong, it raises an error that names the place, and the cause, found by experiments.
"""

from snncell.base.arguments.guard import guard as _guard
from snncell.base.frames import machinery
from snncell.tape.state import unfused
from snncell.testing.bprops import Checked, Row, check_bprop, compare_reverse
from snncell.testing.gradients import check_grads
from snncell.testing.through_time import check_through_time

__all__ = ["Checked", "Row", "check_bprop", "check_grads", "check_through_time", "compare_reverse", "unfused"]
machinery(__file__)
_guard(globals())
