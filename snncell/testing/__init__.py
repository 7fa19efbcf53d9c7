"""Checks of gradients and of custom reverses, for users and for snncell's own tests.

All checks compute in float64, where a reverse that is wrong by a tenth of a percent stands out from rounding. What they
find is an object to print; what is wrong is an error that says where, and, by experiments, why.
"""

from snncell.base.arguments.guard import guard as _guard
from snncell.base.frames import machinery
from snncell.tape.state import unfused
from snncell.testing.bprops import check_bprop
from snncell.testing.compare import Checked, Row, compare_reverse
from snncell.testing.gradients import check_grads
from snncell.testing.through_time import check_through_time

__all__ = ["Checked", "Row", "check_bprop", "check_grads", "check_through_time", "compare_reverse", "unfused"]
machinery(__file__)
_guard(globals())
