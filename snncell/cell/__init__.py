"""Cell, the base class of layers and networks: calls, the tree of Parameters, hooks, state, and custom gradients."""
