"""Turns with vLLM 0.20: its own sleep, its weights replaced by the trainer's."""
