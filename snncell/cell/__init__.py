"""The Cell: its call, its tree of Parameters and Cells, hooks, state, and the custom backward pass by `bprop`."""
