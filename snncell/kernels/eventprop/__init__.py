"""EventProp: exact spike times and their gradients, for LIF neurons in closed form, and for any neuron by a solver."""
