"""Diagnose a network over a batch: facts, measures, and a table of rules that turns them into findings.

probe, facts                    run the network on a batch; the recorded arrays
training, activity              measures: functions from facts to the numbers of a rule
findings, rules                 classes of findings and rules; the table of rules, and `diagnose`

The package is internal. Users call `snncell.plot.report`, which writes the findings to a page.
"""
