"""Cells over time: MultiStep, TimeDistributed, recurrent and stateful neurons, truncated gradients, lengths."""
