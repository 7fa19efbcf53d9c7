"""Arguments: what annotations say they are, the check that is made of that, and names that are not there."""
