"""What measures a node itself: its GPUs, memories and links. No model runs."""
