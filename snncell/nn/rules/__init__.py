"""Learning rules other than backpropagation through time: OTTT, e-prop, feedback alignment, EventProp, STDP."""
