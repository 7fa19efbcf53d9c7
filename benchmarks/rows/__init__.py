"""The rows of the table, a file for each kind."""

from benchmarks.row import Row
from benchmarks.rows import convolution, layers, linear, neurons, spiking_nets

MODULES = (neurons, linear, spiking_nets, convolution, layers)
ROWS: dict[str, Row] = {row.name: row for module in MODULES for row in module.ROWS}
