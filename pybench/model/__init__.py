"""Floor 0: frozen dataclasses that every other room speaks in. Standard library only, Python 3.10 and newer."""
