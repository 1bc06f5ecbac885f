"""The measured process, in a container or not: standard library plus the backend under test, Python 3.10 and newer."""
