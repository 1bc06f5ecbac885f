"""The tensorrt_llm backend: join the replicas, start an engine, generate."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import tensorrt_llm
from tensorrt_llm.llmapi import TorchLlmArgs

from pybench.model.tuning import LOOPBACK
from pybench.model.wire import WorkOrder
from pybench.model.workloads.engine_arguments import decided_arguments
from pybench.model.workloads.generate import Generate
from pybench.worker.backend import Session, generation_of
from pybench.worker.backends.engine.arguments import config_folder, merged
from pybench.worker.backends.engine.replicas import joined_replica
from pybench.worker.backends.engine.requests import draw_requests
from pybench.worker.backends.tensorrt_llm.engine import TensorrtEngine, TensorrtGeneration, engine_starts
from pybench.worker.backends.tensorrt_llm.translation import engine_arguments
from pybench.worker.ranks import Ranks

join = joined_replica


@contextmanager
def prepare(order: WorkOrder, ranks: Ranks) -> Iterator[Session]:
    """Start an engine with random weights for the order's shape."""
    settings, architecture = generation_of(order)
    for name, value in LOOPBACK.items():
        os.environ.setdefault(name, value)
    with config_folder(architecture, settings.dtype) as folder:
        ours = engine_arguments(settings, folder)
        version = f"tensorrt_llm {tensorrt_llm.__version__}"
        decided = decided_arguments("tensorrt_llm", Generate)
        arguments = merged(ours, settings.engine_args, set(TorchLlmArgs.model_fields), version, decided)
        with engine_starts():
            engine = TensorrtEngine(settings, arguments)
        try:
            yield partial(_generation, engine=engine, replica=ranks.rank)
        finally:
            engine.close()


@contextmanager
def _generation(order: WorkOrder, engine: TensorrtEngine, replica: int) -> Iterator[TensorrtGeneration]:
    settings, architecture = generation_of(order)
    yield TensorrtGeneration(engine, settings, draw_requests(settings, architecture["vocab_size"], replica))
