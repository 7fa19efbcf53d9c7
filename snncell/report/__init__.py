"""Diagnose a network over a batch: facts, measures, and a table of rules that turns them into findings.

facts, slopes           what is known of a network over one batch, as plain arrays
probe, validate         the one call from which facts come, after which everything is put back
findings                a finding, its kinds and severities; how numbers are written; the form of a rule
training, gradients, activity   measures: facts in, numbers under the name of a rule out
rules, diagnose         the table of rules, with the reason of each limit; all measures, judged by it

It is internal: `snncell.plot.report` draws a page of it.
"""
