"""EventProp: spike times of neurons with two exponentials, and their gradients."""
