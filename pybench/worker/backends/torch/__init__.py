"""PyTorch with model definitions from transformers."""
