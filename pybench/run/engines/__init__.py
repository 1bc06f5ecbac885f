"""Floor 5: how workers are started and ended, by this machine's Python or in containers; one folder an engine."""
