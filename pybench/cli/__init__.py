"""Floor 6: click commands; the only place that prints and exits."""
