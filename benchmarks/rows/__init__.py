"""Rows of the tables, one file per kind of workload."""

from benchmarks.row import Row
from benchmarks.rows import (
    blocks,
    converted,
    convolution,
    delays,
    layers,
    linear,
    long_lif,
    long_memory,
    neurons,
    online,
    open_neuromorphic,
    sparse,
    spike_times,
    spiking_nets,
)

MODULES = (
    linear,
    spiking_nets,
    convolution,
    blocks,
    converted,
    neurons,
    online,
    long_lif,
    long_memory,
    layers,
    delays,
    sparse,
    spike_times,
    open_neuromorphic,
)
ROWS: dict[str, Row] = {row.name: row for module in MODULES for row in module.ROWS}
