"""What programs written for eager devices need on XLA devices: see docs/clients.

Each module has `install()`, which says what it changes, and `uninstall()`. Importing one changes
nothing.
"""
