"""The loops of the CPU, as templates that the emitter fills with the statements of a fused computation."""
