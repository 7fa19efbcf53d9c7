"""Compare the results of contestants with those of snncell."""

from __future__ import annotations

from typing import Any

import numpy as np

MAX_FLIPPED = 2e-4  # share of spikes that may differ, because a compiler may contract a * b + c to one rounding
MAX_DISTANCE = 1e-3  # relative distance of gradients if all spikes are equal
MAX_DISTANCE_FLIPPED = 3e-2  # relative distance of gradients if some spikes differ


def as_array(x: Any) -> Any:
    """Convert a tensor of any framework to a NumPy array."""
    if hasattr(x, "asnumpy"):
        return x.asnumpy()
    return np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)


def check_results(who: str, ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Check that results are equal to snncell's. Return a note on their distance.

    Raises:
        ValueError: names, shapes, spikes or gradients differ, or so few or so many neurons fire that the comparison
            would say little.
    """
    if not theirs or not theirs.keys() <= ours.keys():
        raise ValueError(f"{who} returns {list(theirs)}, not {list(ours)}.")
    missing = [name for name in ours if name not in theirs]
    a, b = ({name: as_array(results[name]) for name in theirs} for results in (ours, theirs))
    notes, flipped = [], 0.0
    for name, x in a.items():
        if x.shape != b[name].shape:
            raise ValueError(f"{who}: {name} has the shape {b[name].shape}, not {x.shape}.")
    if "spikes" in a:
        rate, flipped = float(a["spikes"].mean()), float((a["spikes"] != b["spikes"]).mean())
        if not 0.01 < rate < 0.7:
            raise ValueError(f"{who}: neurons fire at {rate:.1%} of the steps, which is no test. Use other weights.")
        if flipped > MAX_FLIPPED:
            raise ValueError(f"{who}: {flipped:.2%} of the spikes differ.")
        notes.append(f"{round(flipped * a['spikes'].size)} of {a['spikes'].size} spikes differ")
    distances = {name: relative_distance(x, b[name]) for name, x in a.items() if name != "spikes"}
    for name, distance in distances.items():
        if not distance < (MAX_DISTANCE_FLIPPED if flipped else MAX_DISTANCE):
            raise ValueError(f"{who}: {name} differs by {distance:.1e} of its norm.")
    if distances:
        notes.append(f"the rest by {max(distances.values()):.0e} of its norm")
    if missing:
        notes.append(f"not compared: {', '.join(missing)}")
    return f"{who}: {', '.join(notes)}"


def relative_distance(a: Any, b: Any) -> float:
    """Return the norm of the difference, divided by the norm of `a`."""
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(a), 1e-30))
