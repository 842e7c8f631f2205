"""Files for other programs, each a function of the report document."""
