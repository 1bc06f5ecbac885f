"""What runs inside the container: standard library plus the backend under test, Python 3.10 and newer."""
