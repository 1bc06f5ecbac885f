"""TensorRT-LLM 1.x: its LLM API with the PyTorch backend."""
