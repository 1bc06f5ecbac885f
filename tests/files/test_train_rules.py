"""Training benchmarks that make no sense are refused, strategy by strategy."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybench.model.workloads.train import Train
from pybench.model.workloads.train_rules import OPTIONS, STRATEGIES
from tests.builders import suite_problems

HEAD = (
    'schema = 1\nname = "s"\n[[benchmark]]\nname = "t"\nworkload = "train"\nbackend = "torch"\nmodel = "llama-tiny"\n'
    "sequence_tokens = 4\n"
)
STRONG = "global_batch_size = 8\n"
VALUES = {
    "activation_checkpointing": '"full"',
    "mixed_precision": '"bfloat16"',
    "schedule": '"gpipe"',
    "lora_targets": '"attention"',
    "bucket_cap_mb": "25",
    "control_steps": "2",
    "microbatches": "2",
    "stages_per_rank": "1",
    "lora_rank": "8",
    "lora_alpha": "16",
    "zero_stage": "3",
    "deepspeed_config": '"ds.json"',
    "weights": '"nf4"',
    "loss_chunk_tokens": "64",
    "evaluation_every_steps": "200",
    "evaluation_method": '"loss"',
    "evaluation_batches": "2",
    "evaluation_output_tokens": "2",
    "evaluation_accumulation_steps": "1",
    "optimizer": '"sgd"',
    "max_grad_norm": "0.1",
    "lora_dropout": "0.05",
}
# Other settings that an option needs, so that only the strategy can be wrong.
_DECODED = 'evaluation_every_steps = 200\nevaluation_method = "generation"\n'
BESIDE = {
    **dict.fromkeys(
        ("evaluation_method", "evaluation_batches", "evaluation_accumulation_steps"), "evaluation_every_steps = 200\n"
    ),
    "evaluation_output_tokens": _DECODED,
    "lora_alpha": "lora_rank = 8\n",
    "lora_targets": "lora_rank = 8\n",
    "mixed_precision": 'dtype = "float32"\n',
    "async_tensor_parallel": "sequence_parallel = true\ncompile = true\ntensor_parallel = 2\n",
    "sequence_parallel": "tensor_parallel = 2\n",
    "offload_parameters": "zero_stage = 3\n",
    "weights": "lora_rank = 8\n",
    "hybrid_shard": "nodes = 2\n",
    "lora_dropout": "lora_rank = 8\n",
}

WEAK_ALONG_TENSOR = """
batch_size_per_gpu = 2
strategy = "tensor_parallel"
[benchmark.axes]
tensor_parallel = [1, 2]
[[benchmark.expect]]
metric = "tokens_per_s"
scaling = "weak"
along = "tensor_parallel"
"""


def problems(tmp_path: Path, text: str) -> str:
    """Faults of a suite; empty without any."""
    (tmp_path / "ds.json").write_text("{}")
    return suite_problems(tmp_path, HEAD + text)


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_an_option_belongs_to_its_strategies(tmp_path: Path, option: str) -> None:
    """Taken by those that have it, refused by the others with a list of those."""
    for strategy, declared in STRATEGIES.items():
        text = f'{STRONG}strategy = "{strategy}"\n{option} = {VALUES.get(option, "true")}\n{BESIDE.get(option, "")}'
        found = problems(tmp_path, text)
        if option in declared.options:
            assert found == "", strategy
        else:
            assert f"{option}: strategy {strategy} has no {option}, only " in found


def test_every_option_is_a_setting() -> None:
    """The table can't name what is not there."""
    assert set(Train.__dataclass_fields__) >= OPTIONS


def test_every_strategy_of_an_axis_must_have_the_option(tmp_path: Path) -> None:
    """Or two points would differ in name alone."""
    axes = '[benchmark.axes]\nstrategy = ["ddp", "fsdp"]\nbucket_cap_mb = [5, 25]\n'
    assert "axes.bucket_cap_mb: strategy fsdp has no bucket_cap_mb, only ddp" in problems(tmp_path, STRONG + axes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grad_accum = 2\n", "needs exactly one of global_batch_size"),
        ("global_batch_size = 8\nbatch_size_per_gpu = 2\n", "or both with grad_accum = 'auto'"),
        ('global_batch_size = 8\ngrad_accum = "auto"\n', "'auto' needs both global_batch_size and batch_size_per_gpu"),
        (
            "global_batch_size = 8\nbatch_size_per_gpu = 2\n[benchmark.axes]\ngrad_accum = [1, 'auto']\n",
            "axes.grad_accum: 'auto' needs both",
        ),
        ('batch_size_per_gpu = "most"\n', "batch_size_per_gpu"),
        ("batch_size_per_gpu = 0\n", "found 0, must be at least 1"),
        (STRONG + "lora_alpha = 8\n", "lora_alpha: needs lora_rank"),
        (STRONG + 'strategy = "pipeline_parallel"\nstages_per_rank = 2\n', "needs schedule = 'interleaved_1f1b'"),
        (
            STRONG + 'strategy = "pipeline_parallel"\nschedule = "gpipe"\nstages_per_rank = 2\n',
            "schedule: gpipe has one stage for each rank",
        ),
        (
            STRONG + 'strategy = "tensor_parallel"\nasync_tensor_parallel = true\ncompile = true\n',
            "needs sequence_parallel = true",
        ),
        (
            STRONG + 'strategy = "fsdp"\nsequence_parallel = true\n',
            "sequence_parallel: has no effect without tensor_parallel above 1: set that, or remove it",
        ),
        (STRONG + 'strategy = "deepspeed"\noffload_parameters = true\nzero_stage = 2\n', "needs zero_stage = 3"),
        (STRONG + 'strategy = "fsdp"\nmixed_precision = "bfloat16"\n', "set dtype = 'float32'"),
        (
            STRONG + 'strategy = "torchtune"\nactivation_checkpointing = "selective"\n',
            "strategy: torchtune recomputes whole layers only",
        ),
        (STRONG + 'strategy = "torchtune"\nzero_stage = 1\n', "strategy torchtune has no zero_stage, only deepspeed"),
        (
            'batch_size_per_gpu = "auto"\nstrategy = "layer_split"\n',
            "batch_size_per_gpu: 'auto' can't be tried with strategy layer_split, whose stages wait for each other",
        ),
        (
            'batch_size_per_gpu = "auto"\n[benchmark.axes]\nstrategy = ["ddp", "pipeline_parallel"]\n',
            "batch_size_per_gpu: 'auto' can't be tried with strategy pipeline_parallel",
        ),
        (STRONG + 'strategy = "deepspeed"\nfused_adamw = true\n', "brings its own optimizer"),
        (STRONG + 'optimizer = "sgd"\nfused_adamw = true\n', "optimizer: fused_adamw belongs to optimizer = 'adamw'"),
        (
            STRONG + 'strategy = "fsdp"\noptimizer = "adamw_8bit"\n',
            "strategy: fsdp splits weights and states, which bitsandbytes' optimizers can't take",
        ),
        (
            STRONG + 'strategy = "fsdp"\nmax_grad_norm = 1.0\ncpu_offload = true\n',
            "max_grad_norm: can't join the norms of gradients in host memory",
        ),
        (STRONG + "lora_dropout = 0.1\n", "lora_dropout: needs lora_rank"),
        (
            WEAK_ALONG_TENSOR,
            "tensor_parallel adds no samples: weak scaling of training runs along data_parallel",
        ),
    ],
)
def test_settings_that_contradict_each_other(tmp_path: Path, text: str, message: str) -> None:
    """Each with its own words."""
    assert message in problems(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        'batch_size_per_gpu = "auto"\n',
        'global_batch_size = 8\nbatch_size_per_gpu = "auto"\ngrad_accum = "auto"\n',
        'global_batch_size = 8\ngrad_accum = "auto"\n[benchmark.axes]\nbatch_size_per_gpu = [1, 2, "auto"]\n',
        STRONG + 'strategy = "pipeline_parallel"\nschedule = "interleaved_1f1b"\nstages_per_rank = 2\n',
        STRONG + "grad_accum = 2\n[benchmark.axes]\nfind_unused_parameters = [true, false]\n",
    ],
)
def test_settings_that_go_together(tmp_path: Path, text: str) -> None:
    """A word beside a number, too."""
    assert problems(tmp_path, text) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pin_memory = true", "pin_memory: needs loader_workers"),
        ("loader_workers = 300", "loader_workers: found 300, must be at most 256"),
    ],
)
def test_settings_of_a_loader_need_a_loader(tmp_path: Path, text: str, message: str) -> None:
    """And no more workers than the limit."""
    assert message in problems(tmp_path, f"{STRONG}{text}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("evaluation_batches = 2", "evaluation_batches: needs evaluation_every_steps"),
        (_DECODED, "64 leaves no prompt in a sample of sequence_tokens = 4"),
        (
            f"{_DECODED}evaluation_output_tokens = 2\nloss_chunk_tokens = 64",
            "'generation' needs the logits that loss_chunk_tokens leaves out",
        ),
        (f"{_DECODED}evaluation_output_tokens = 2\ncompile = true", "would compile the layers again for every length"),
        (
            'strategy = "fsdp"\nevaluation_every_steps = 2\ntensor_parallel = 2',
            "evaluates models whose layers are whole: remove tensor_parallel",
        ),
    ],
)
def test_what_an_evaluation_needs(tmp_path: Path, text: str, message: str) -> None:
    """Samples that have a prompt, and models that can decode."""
    assert message in problems(tmp_path, f"{STRONG}{text}\n")


@pytest.mark.parametrize(
    ("degree", "message"),
    [('data_parallel = "rest"', ""), ("data_parallel = 2", "nodes add samples where replicas fill them: set data_par")],
)
def test_weak_scaling_over_nodes(tmp_path: Path, degree: str, message: str) -> None:
    """Nodes bring samples only with the replicas on them."""
    text = f"""
{degree}
batch_size_per_gpu = 2
[benchmark.axes]
nodes = [1, 2]
[[benchmark.expect]]
metric = "tokens_per_s"
scaling = "weak"
along = "nodes"
"""
    assert message in problems(tmp_path, text)
    assert bool(message) == bool(problems(tmp_path, text))
