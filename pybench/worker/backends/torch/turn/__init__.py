"""Turns with torch's own engine, which stands in for a serving engine where none runs."""
