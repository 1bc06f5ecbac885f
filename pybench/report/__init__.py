"""Floor 4: results to text; nothing here prints."""
