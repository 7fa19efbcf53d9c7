"""The parts that a Cell is made of: its tree and the names in it, hooks, what is kept and loaded, recomputation."""
