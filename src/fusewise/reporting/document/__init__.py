"""The report document: one plain JSON value with all that a compilation did, from which pages and files are made."""
