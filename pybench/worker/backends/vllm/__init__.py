"""vLLM 0.20 and newer: its offline engine for batches, its asynchronous one for requests as they come."""
