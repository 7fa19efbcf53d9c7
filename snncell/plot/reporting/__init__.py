"""The report: facts of a network over a batch, findings from them in words, and a page with pictures."""
