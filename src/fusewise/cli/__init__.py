"""The command line: one verb a module, words and tables only; what they do is in `fusewise.api`."""
