"""Floor 7: click commands; the only place that prints and exits."""
