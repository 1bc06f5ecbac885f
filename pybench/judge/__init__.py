"""Floor 2: from records to results and verdicts; pure."""
