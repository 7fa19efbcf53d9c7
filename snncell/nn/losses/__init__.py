"""Losses of values and classes, of spikes and potentials over time, of spike times, and regularisers of activity."""
