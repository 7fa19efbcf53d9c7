"""Normalisation: batch, layer, group and instance normalisation, and those of spiking networks."""
