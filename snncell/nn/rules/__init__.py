"""Learning rules beside backpropagation through time: OTTT, e-prop, feedback alignment, EventProp, STDP."""
