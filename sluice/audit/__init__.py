"""`sluice audit`: the record from the command line."""
