"""Strict models of the suite file, derived from the settings dataclasses so that limits are stated once."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, create_model
from pydantic_core import PydanticCustomError

from pybench.files.shipped import load_models
from pybench.model.container import ContainerRequest, RelaxationName
from pybench.model.suite import Comparison, Effort, Limits, Scaling, TableFigure, TrainingJob
from pybench.model.tuning import MAX_ENVIRONMENT, environment_problem
from pybench.model.workloads.registry import METRICS_OF, SETTINGS_OF, SHARED_BATCH, count_axes, setting_names
from pybench.model.workloads.settings import ALL_GPUS, ENVIRONMENT, INSTALLED, MODEL_CONFIG, NODES, REST, Range

SUITE_VERSION = 1
MAX_AXIS_VALUES = 64
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
# No control characters, and none that turns a line: the text goes to terminals and reports.
_TEXT_PATTERN = r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]{0,2000}$"

# Which of the two a value was taken for; part of pydantic's path, and no key of the file.
WORD, NUMBER = "[word]", "[number]"
MARKS = frozenset((WORD, NUMBER))

_MAX_ENTRIES = 64
# Nothing that a command line, a mount option, an environment file or a terminal reads as more than a letter.
_PATH = re.compile(r"(/(?!\.\.?(/|$))[A-Za-z0-9_.+@=%-]+)+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ONE_LINE = re.compile(r"[^\x00-\x1f\x7f]{0,4096}")
_IMAGE = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,255}$"

_Name = Annotated[str, Field(pattern=NAME_PATTERN)]
_FilePath = Annotated[str, Field(min_length=1, pattern=_TEXT_PATTERN)]
_ModelConfig = Annotated[
    _FilePath, Field(description="instead of model: a Hugging Face config.json, relative to the suite's folder")
]
JOB_WORKLOAD = "train"
_COUNTS = {axis for workload in SETTINGS_OF for axis in count_axes(workload)}
_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@cache
def container_model() -> type[BaseModel]:
    """The table's shape."""
    path = _matching(_PATH, "a path is absolute, has no . or .. in it, and only letters, digits and _ . + @ = % -")
    mount = create_model("mount", __config__=_CONFIG, source=(path, ...), target=(path, ...))
    many = Field(max_length=_MAX_ENTRIES)
    name: Any = _matching(_VARIABLE, "a variable's name is letters, digits and _, and begins with no digit")
    value: Any = _matching(_ONE_LINE, "a value is one line without control characters")
    fields: dict[str, Any] = {
        "image": Annotated[str, Field(pattern=_IMAGE)],
        "mounts": Annotated[list[mount], many],  # type: ignore[valid-type]
        "environment": Annotated[dict[name, value], many],
        "secrets": Annotated[list[name], many],
        "relax": Annotated[list[RelaxationName], Field(max_length=len(get_args(RelaxationName)))],
    }
    hints = get_type_hints(ContainerRequest, include_extras=True)
    described = {key: Annotated[kind, Field(description=get_args(hints[key])[-1])] for key, kind in fields.items()}
    return _model("container", _optional(described))


def _matching(pattern: re.Pattern[str], problem: str) -> Any:  # noqa: ANN401 - types are values here
    return checked(str, lambda text: None if pattern.fullmatch(text) else problem)


def checked(kind: Any, problem_of: Callable[[Any], str | None]) -> Any:  # noqa: ANN401 - types are values here
    """The type, whose values are refused with their problem."""

    def check(value: object) -> object:
        if problem := problem_of(value):
            raise PydanticCustomError("value", "{problem}", {"problem": problem})
        return value

    return Annotated[kind, AfterValidator(check)]


def fields_of(kind: type) -> dict[str, Any]:
    """The dataclass's fields as annotated types that pydantic can check."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _checked(field.name, hints[field.name]) for field in dataclasses.fields(kind)}


def _checked(name: str, hint: Any) -> Any:  # noqa: ANN401 - types are values here
    base, *notes = get_args(hint)
    members = get_args(base) if get_origin(base) in {Union, UnionType} else (base,)
    if name == "model":
        members = (Literal[tuple(load_models())],)
    if name == "deepspeed_config":
        return Annotated[_FilePath, Field(description=notes[-1])]
    if name == ENVIRONMENT:
        text = checked(str, environment_problem)
        return Annotated[text, Field(max_length=MAX_ENVIRONMENT, description=notes[-1])]
    if get_origin(base) is dict:
        nests = list[Any] in get_args(get_args(base)[1])
        members = (checked(dict[str, Any], partial(_value_problem, nests=nests)),)
    limits = next((note for note in notes if isinstance(note, Range)), Range())
    description = next((note for note in notes if isinstance(note, str)), None)
    # Limits are a number's: beside it a word such as 'auto' may stand.
    within = Field(ge=limits.minimum, le=limits.maximum)
    kinds = [
        kind if get_origin(kind) is Literal else Annotated[kind, within] for kind in members if kind is not NoneType
    ]
    words = [kind for kind in kinds if get_origin(kind) is Literal]
    numbers = [kind for kind in kinds if kind not in words]
    # A union of one is that one, but typing's cache may hand out an equal Literal with its values in another order.
    whole = kinds[0] if len(kinds) == 1 else Union[tuple(kinds)]  # noqa: UP007 - at run time
    return Annotated[_either(numbers[0], words[0]) if words and numbers else whole, Field(description=description)]


def _either(number: Any, word: Any) -> Any:  # noqa: ANN401 - types are values here
    """A number or a word, chosen by the value, so that an error is about the kind that was meant."""
    return Annotated[
        Union[Annotated[number, Tag(NUMBER)], Annotated[word, Tag(WORD)]],  # noqa: UP007 - built at run time
        Discriminator(lambda value: WORD if isinstance(value, str) else NUMBER),
    ]


def _value_problem(table: dict[str, Any], *, nests: bool) -> str | None:
    kinds = "a string, a number, true or false" + (", or a list or table of such" if nests else "")
    for key, value in table.items():
        if not (_is_json(value) if nests else isinstance(value, str | int | float)):
            return f"{key!r} must be {kinds}"
    return None


def _is_json(value: Any) -> bool:  # noqa: ANN401 - whatever TOML can hold
    if isinstance(value, list | dict):
        return all(_is_json(each) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


# No default in the JSON schema: a key without a value has the benchmark's, or none.
_absent = partial(Field, default=None, json_schema_extra=lambda schema: schema.pop("default", None))


def _optional(types: dict[str, Any]) -> dict[str, Any]:
    return {name: (kind, _absent()) for name, kind in types.items()}


def _twice(values: list[Any]) -> str | None:
    return next((f"{value!r} appears twice" for index, value in enumerate(values) if value in values[:index]), None)


def _axes_model(name: str, types: dict[str, Any]) -> type[BaseModel]:
    size = Field(min_length=1, max_length=MAX_AXIS_VALUES)
    kinds = {key: kind for key, kind in types.items() if key != "deepspeed_config"}
    single = {key: kind for key, kind in kinds.items() if get_origin(get_args(kind)[0]) is not dict}
    # A word among the numbers of an axis that is no value of the setting.
    single |= {key: _either(kind, Literal[ALL_GPUS]) for key, kind in single.items() if key in _COUNTS}
    if "backend" in single:
        names, *notes = get_args(single["backend"])
        single["backend"] = Annotated[Literal[(*get_args(names), INSTALLED)], *notes]
    axes = {key: checked(Annotated[list[kind], size], _twice) for key, kind in single.items()}  # type: ignore[valid-type]
    return _model(name, _optional(axes))


def _model(name: str, fields: dict[str, Any]) -> type[BaseModel]:
    if MODEL_CONFIG in fields:  # pydantic keeps a class's options under that name
        (kind, _), others = fields[MODEL_CONFIG], {key: value for key, value in fields.items() if key != MODEL_CONFIG}
        return _model(name, {**others, "config_of_model": (kind, _absent(alias=MODEL_CONFIG))})
    return create_model(name, __config__=_CONFIG, **fields)


def _override(name: str, types: dict[str, Any], /, **more: Any) -> type[BaseModel]:  # noqa: ANN401 - field definitions
    axes = _axes_model(f"{name}_axes", types)
    # A word that stands for one number, other than the words of an axis.
    fixed = {
        key: Annotated[_either(kind, Literal[REST]), get_args(kind)[-1]] if key in _COUNTS else kind  # its description
        for key, kind in types.items()
    }
    return _model(name, {**_optional({**fixed, **fields_of(Effort), "axes": axes}), **more})


def _settings(workload: str) -> dict[str, Any]:
    names = setting_names(workload)
    kinds = {name: kind for name, kind in fields_of(SETTINGS_OF[workload]).items() if name in names}
    return {**kinds, MODEL_CONFIG: _ModelConfig} if MODEL_CONFIG in names else kinds


@cache
def _benchmark(workload: str) -> type[BaseModel]:
    types = _settings(workload)
    over_nodes = (NODES,) if NODES in setting_names(workload) else ()
    along: Any = Literal[(*count_axes(workload), *over_nodes)]
    along_note = Field(description="axis the GPU count grows along")
    names = dict.fromkeys(("table", "below", "above", "widening_along"), _Name)
    fields = fields_of(Scaling) | fields_of(Limits) | fields_of(TableFigure) | fields_of(Comparison)
    given = {name: kind for name, kind in fields.items() if name not in {"form", "order", "other"}}
    expect = {**given, **names, "along": Annotated[along, along_note]}
    metric = (Literal[tuple(METRICS_OF[workload])], Field(description="metric that is judged"))
    expectation = _model(f"{workload}_expect", {**_optional(expect), "metric": metric})
    listed = Annotated[list[expectation], Field(max_length=MAX_AXIS_VALUES)]  # type: ignore[valid-type]
    required = Annotated[bool, Field(description="what the machine lacks for it is missing instead of left out")]
    job = {"job": Annotated[_job(), Field(description="the whole training that a step is part of")]}
    rounded = Annotated[bool, Field(description="the batch becomes a multiple that every number of GPUs here divides")]
    batch = {"round_up_batch": rounded} if workload in SHARED_BATCH else {}
    more = _optional({"expect": listed, "required": required, **batch, **(job if workload == JOB_WORKLOAD else {})})
    named = {"name": (_Name, ...), "workload": (Literal[workload], ...), **more}
    return _override(f"{workload}_benchmark", types, **named)


@cache
def _job(*, partly: bool = False) -> type[BaseModel]:
    types = fields_of(TrainingJob)
    required = {} if partly else {"samples": (types["samples"], ...)}
    return _model("profile_job" if partly else "job", {**_optional(types), **required})


@cache
def _profile() -> type[BaseModel]:
    """It may set any workload's fields; which benchmark takes them is checked apart."""
    everything = {name: kind for workload in SETTINGS_OF for name, kind in _settings(workload).items()}
    omit = Annotated[bool, Field(description="leave the benchmark out on this kind of machine")]
    job = {"job": Annotated[_job(partly=True), Field(description="what replaces parts of a benchmark's job")]}
    override = _override("profile_benchmark", everything, **_optional({"omit": omit, **job}))
    benchmarks_of = {"benchmark": dict[str, override]}  # type: ignore[valid-type]
    return _override("profile", everything, **_optional({**benchmarks_of, **job}))


def model_of(document: Mapping[str, Any]) -> type[BaseModel]:
    """Check the document with the models of its own workloads; models of the others would take half a second."""
    tables = document.get("benchmark")
    named = [table.get("workload") for table in tables if isinstance(table, dict)] if isinstance(tables, list) else []
    workloads = tuple(workload for workload in SETTINGS_OF if workload in named)
    if not workloads or any(name not in workloads for name in named):
        workloads = tuple(SETTINGS_OF)  # the error names every valid one
    if len(workloads) == 1:  # pydantic chooses between two or more
        workloads = (*workloads, next(workload for workload in SETTINGS_OF if workload not in workloads))
    return suite_model(workloads, profiles="profile" in document)


@cache
def suite_model(workloads: tuple[str, ...] = tuple(SETTINGS_OF), *, profiles: bool = True) -> type[BaseModel]:
    """The file with benchmarks of these workloads; without ``profiles``, theirs are not checked."""
    profile: Any = _profile() if profiles else Any
    kinds: Any = Union[tuple(_benchmark(workload) for workload in workloads)]  # noqa: UP007 - at run time
    benchmark: Any = Annotated[kinds, Field(discriminator="workload")]
    benchmarks = Annotated[list[benchmark], Field(min_length=1, max_length=256)]
    description = Annotated[str, Field(pattern=_TEXT_PATTERN, description="one sentence for the reports")]
    rates = Annotated[bool, Field(description="on GPUs, measure the points of node_rates too: they predict speedups")]
    return _model(
        "suite",
        {
            "schema_version": (
                Annotated[int, Field(ge=1, le=SUITE_VERSION)],
                Field(alias="schema", description="version of this format"),
            ),
            "name": (_Name, ...),
            "description": (description, ""),
            "rates": (rates, False),
            "benchmark": (benchmarks, ...),
            **_optional({"profile": dict[_Name, profile], "container": container_model()}),
        },
    )


DIALECT = "https://json-schema.org/draft/2020-12/schema"
_KEYS = {
    "name": "word by which reports, tables and other benchmarks name this",
    "workload": "what is measured; it decides which keys there are",
    "benchmark": "workloads to measure",
    "axes": "lists of values to sweep; each combination is a point",
    "expect": "what the results must show",
    "profile": "what other machines or purposes measure instead, by name",
    "container": "how workers in containers are started",
    "table": "expected table that has the limits",
    "below": "benchmark or point whose metric must be higher",
    "above": "benchmark or point whose metric must be lower",
    "widening_along": "axis along which the distance must grow",
    "source": "folder of this host",
    "target": "where workers find the folder",
}


def suite_schema() -> dict[str, Any]:
    """JSON Schema of the suite file, for editors: a benchmark is checked against its own workload alone."""
    schema = suite_model().model_json_schema()
    structures = schema["$defs"]
    described = {**_KEYS}
    for structure in structures.values():
        for name, key in structure["properties"].items():
            described.setdefault(name, key.get("description", ""))
    for structure in (schema, *structures.values()):
        # `false` would let editors mark the whole table: this marks the key alone.
        structure["additionalProperties"] = {"not": {"description": "no such key"}}
        for name, key in structure["properties"].items():
            key.setdefault("description", described.get(name, ""))
    for workload, settings in SETTINGS_OF.items():
        keys = structures[f"{workload}_benchmark"]["properties"]
        for field in (*dataclasses.fields(settings), *dataclasses.fields(Effort)):
            if field.name in keys and field.default not in {None, dataclasses.MISSING}:
                keys[field.name]["default"] = field.default
    chosen = [
        {
            "if": {"properties": {"workload": {"const": workload}}, "required": ["workload"]},
            "then": {"$ref": f"#/$defs/{workload}_benchmark"},
        }
        for workload in SETTINGS_OF
    ]
    kind = {"workload": {"enum": [*SETTINGS_OF], "description": _KEYS["workload"]}}
    schema["properties"]["benchmark"]["items"] = {
        "type": "object",
        "properties": kind,
        "required": ["workload"],
        "allOf": chosen,
    }
    about = "A suite of pybench: benchmarks, values to sweep, and what the results must show."
    return {"$schema": DIALECT, "$id": f"urn:pybench:suite:{SUITE_VERSION}", "description": about, **schema}
