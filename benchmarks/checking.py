"""Comparing what contestants find."""

from __future__ import annotations

from typing import Any

import numpy as np

FLIPPED = 2e-4  # the share of spikes that may differ: a compiler may contract a * b + c to one rounding
APART = 1e-3  # the distance of two gradients, in norms, if all spikes are the same
APART_BY_SPIKES = 3e-2  # and if some are not


def as_array(x: Any) -> Any:
    """The NumPy array of anybody's tensor."""
    if hasattr(x, "asnumpy"):
        return x.asnumpy()
    return np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)


def agree(who: str, mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Refuse results that are others than snncell's; in words, how close they are."""
    if not theirs or not theirs.keys() <= mine.keys():
        raise ValueError(f"{who} finds {list(theirs)}, not {list(mine)}.")
    missing = [name for name in mine if name not in theirs]
    a, b = ({name: as_array(found[name]) for name in theirs} for found in (mine, theirs))
    words, flipped = [], 0.0
    for name, x in a.items():
        if x.shape != b[name].shape:
            raise ValueError(f"{who}: {name} is {b[name].shape}, not {x.shape}.")
    if "spikes" in a:
        rate, flipped = float(a["spikes"].mean()), float((a["spikes"] != b["spikes"]).mean())
        if not 0.01 < rate < 0.7:
            raise ValueError(f"{who}: neurons fire at {rate:.1%} of the steps; this compares little.")
        if flipped > FLIPPED:
            raise ValueError(f"{who}: {flipped:.2%} of the spikes differ.")
        words.append(f"{round(flipped * a['spikes'].size)} of {a['spikes'].size} spikes differ")
    rest = [name for name in a if name != "spikes"]
    apart = {name: distance(a[name], b[name]) for name in rest}
    for name, far in apart.items():
        if not far < (APART_BY_SPIKES if flipped else APART):
            raise ValueError(f"{who}: {name} differs by {far:.1e} of its norm.")
    if apart:
        words.append(f"the rest by {max(apart.values()):.0e} of its norm")
    if missing:
        words.append(f"not compared: {', '.join(missing)}")
    return f"{who}: {', '.join(words)}"


def distance(a: Any, b: Any) -> float:
    """The norm of the difference, in norms of `a`."""
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(a), 1e-30))
