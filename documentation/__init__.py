"""The documentation site: the pages of `docs/`, a reference that is read from the program, and pictures that it draws of itself.

`python -m documentation` builds it; nothing of what is generated is kept in the repository.
"""
