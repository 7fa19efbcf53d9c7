"""Diagnose a network over a batch: facts, measures, and a table of rules that turns them into findings.

probe, facts                    one call of the network, and what is known from it, as plain arrays
training, gradients, activity   measures: facts in, numbers under the name of a rule out
findings, rules                 the form of findings and rules; the table of rules, and all measures judged by it

It is internal: `snncell.plot.report` draws a page of it.
"""
