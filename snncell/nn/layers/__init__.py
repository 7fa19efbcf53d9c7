"""Layers: dense, convolution, pooling, dropout, recurrent networks, activations, and layers of spiking networks."""
