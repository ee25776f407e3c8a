"""Load records: what has to be written down about a piece of work so that its resources can be worked out later.

Three kinds, one for each family of workloads: `InteractiveRecord` (chat, agents), `MediaRecord` (images, speech, video) and
`LearningRecord` (one update of training or RL). A record is one line of JSON, so a log of millions is a text file. An unknown
quantity is None (JSON null), never 0. Times are seconds on one clock; sizes are bytes and tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields

from workloads.checks import flag, keep, nonnegative, plain, positive, some, whole
from workloads.counts.request_tokens import Request
from workloads.serving.arrivals import Arrival
from workloads.units import Bytes, Count, FlopCount, Seconds, Tokens

from .measured_runs import recorded_rounds


def _text(value, name):
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be a text that is not empty, got {value!r}")


def _flat(record, name, kind=None):
    """Make a sequence field a tuple, its members of a kind (a dictionary becomes one)."""
    members = plain(getattr(record, name))
    if not isinstance(members, (list, tuple)):
        raise ValueError(f"{name} must be a sequence, got {members!r}")
    members = tuple(_made(kind, m) if isinstance(m, dict) else m for m in members)
    if kind and not all(isinstance(m, kind) for m in members):
        raise ValueError(f"{name} must hold {kind.__name__}s, got {members!r}")
    object.__setattr__(record, name, members)
    return members


@dataclass(frozen=True)
class ModelCall:
    """One model call of a task: whole input, the part of it that hit a cache, output (tokens); start and end (s) if
    known.
    """

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    start: Seconds | None = None
    end: float | None = None

    def __post_init__(self):
        keep(self, whole, "tokens", "input_tokens", "output_tokens", least=1)
        keep(self, whole, "tokens", "cached_tokens")
        if self.cached_tokens >= self.input_tokens:
            raise ValueError(f"cached_tokens (tokens) must be below input_tokens ({self.input_tokens}), got {self.cached_tokens!r}")
        keep(self, nonnegative, "s", "start", "end", unknown=True)
        if self.start is not None and self.end is not None:
            nonnegative(self.end - self.start, "end - start", "s")

    @property
    def request(self) -> Request:
        """The token counts of the call: what is new, what was cached, what it returned."""
        return Request(self.input_tokens - self.cached_tokens, self.output_tokens, self.cached_tokens)


@dataclass(frozen=True)
class ToolCall:
    """One tool call of a task: its name, the model call (index) whose result it waits for, seconds if known."""

    tool: str
    after_call: int
    seconds: Seconds | None = None

    def __post_init__(self):
        _text(self.tool, "tool")
        keep(self, whole, "index", "after_call")
        keep(self, nonnegative, "s", "seconds", unknown=True)


@dataclass(frozen=True)
class InteractiveRecord:
    """A chat request or an agent's task.

    Attributes:
        task: what was asked, in words.
        check: the test that decides whether it is done.
        passed: whether the check was passed; None: unknown.
        model: its name.
        version: of the model.
        arrival: in s.
        calls: in order.
        tools: in order.
        branches: sequences that grow from one prefix.
        reuse_seconds: until the same prefix is wanted again.
    """

    task: str
    check: str
    passed: bool | None
    model: str
    version: str
    arrival: Seconds
    calls: tuple[ModelCall, ...]
    tools: tuple[ToolCall, ...] = ()
    branches: int = 1
    reuse_seconds: Seconds | None = None

    def __post_init__(self):
        for name in ("task", "check", "model", "version"):
            _text(getattr(self, name), name)
        keep(self, flag, "", "passed", unknown=True)
        keep(self, nonnegative, "s", "arrival")
        keep(self, whole, "", "branches", least=1)
        keep(self, nonnegative, "s", "reuse_seconds", unknown=True)
        calls, tools = _flat(self, "calls", ModelCall), _flat(self, "tools", ToolCall)
        some(calls, "calls", "ModelCall")
        for tool in tools:
            if tool.after_call >= len(calls):
                raise ValueError(f"after_call (index) must name one of {len(calls)} calls, got {tool.after_call!r}")


@dataclass(frozen=True)
class MediaRecord:
    """An image, speech or video task.

    Attributes:
        task: what was asked, in words.
        media_bytes: as received; seconds of the stages encode, prefill, decode.
        chunk_times: when each frame or chunk arrived (s), in the order in which they are shown or played (one may
            overtake another).
        encode_seconds: of the phase.
        prefill_seconds: of the phase.
        decode_seconds: of the phase.
        encoder_cache_bytes: held.
        kv_bytes: held.
        first_response_seconds: the deadlines of the first response and of each further chunk.
        chunk_seconds: the deadlines of the first response and of each further chunk.
        interrupted_at: in s.
        unneeded_flops: work that an interruption made useless.
    """

    task: str
    media_bytes: Bytes
    chunk_times: tuple[float, ...]
    encode_seconds: Seconds | None = None
    prefill_seconds: Seconds | None = None
    decode_seconds: Seconds | None = None
    encoder_cache_bytes: Bytes | None = None
    kv_bytes: Bytes | None = None
    first_response_seconds: Seconds | None = None
    chunk_seconds: Seconds | None = None
    interrupted_at: Seconds | None = None
    unneeded_flops: FlopCount | None = None

    def __post_init__(self):
        _text(self.task, "task")
        keep(self, whole, "B", "media_bytes")
        units = {"seconds": "s", "bytes": "B", "at": "s", "flops": "FLOP"}
        for field in fields(self)[3:]:
            check = positive if field.name in ("first_response_seconds", "chunk_seconds") else nonnegative
            keep(self, check, units[field.name.rpartition("_")[2]], field.name, unknown=True)
        for time in _flat(self, "chunk_times"):
            nonnegative(time, "chunk_times", "s")


@dataclass(frozen=True)
class LearningRecord:
    """One update of training or RL.

    Attributes:
        data: what it learns from and the test that guards it.
        quality: what it learns from and the test that guards it.
        sequence_lengths: of its samples (tokens).
        labels: of its samples (tokens).
        micro_batches: per update.
        generated: samples (equal where nothing is generated).
        retained: samples (equal where nothing is generated).
        weight_version: the samples came from.
        reward_calls: model calls made for rewards, and reward_seconds.
        reward_seconds: see `reward_calls`.
        deadline: in s.
    """

    data: str
    quality: str
    sequence_lengths: tuple[int, ...]
    labels: tuple[int, ...]
    micro_batches: int
    generated: int
    retained: int
    weight_version: str
    reward_calls: int = 0
    reward_seconds: Seconds | None = None
    deadline: Seconds | None = None

    def __post_init__(self):
        for name in ("data", "quality", "weight_version"):
            _text(getattr(self, name), name)
        keep(self, whole, "", "micro_batches", least=1)
        keep(self, whole, "calls", "reward_calls")
        keep(self, nonnegative, "s", "reward_seconds", unknown=True)
        keep(self, positive, "s", "deadline", unknown=True)
        lengths, labels = _flat(self, "sequence_lengths"), _flat(self, "labels")
        keep(self, whole, "samples", "generated", least=1)
        keep(self, whole, "samples", "retained")
        if not self.generated >= self.retained == len(lengths) == len(labels):
            raise ValueError(
                f"retained (samples) must be at most generated ({self.generated}) and the number of sequence_lengths "
                f"({len(lengths)}) and labels ({len(labels)}), got {self.retained!r}"
            )
        for length, marked in zip(lengths, labels):
            whole(length, "sequence_lengths", "tokens", least=1)
            whole(marked, "labels", "tokens")
            nonnegative(length - marked, "sequence_lengths - labels", "tokens")


KINDS = {"interactive": InteractiveRecord, "media": MediaRecord, "learning": LearningRecord}


def _made(kind, values):
    names = {f.name for f in fields(kind)}
    if not set(values) <= names:
        raise ValueError(f"{kind.__name__} must hold no fields but {sorted(names)}, got {sorted(set(values) - names)}")
    try:
        return kind(**values)
    except TypeError as error:  # a field without a default is missing
        raise ValueError(f"{kind.__name__} must hold every field without a default: {error}") from None


def to_line(record: InteractiveRecord | MediaRecord | LearningRecord) -> str:
    """A record as one line of JSON, its kind first.

    Args:
        record: an InteractiveRecord, MediaRecord or LearningRecord.

    Example:
        >>> to_line(InteractiveRecord("q1", "exact answer", None, "Qwen3-8B", "v1", 0.25, [ModelCall(1024, 0, 128)]))[
        ...     :54
        ... ]
        '{"kind": "interactive", "task": "q1", "check": "exact '
    """
    kind = next((name for name, cls in KINDS.items() if type(record) is cls), None)
    if kind is None:
        raise ValueError(f"record must be one of {[cls.__name__ for cls in KINDS.values()]}, got {record!r}")
    return json.dumps({"kind": kind, **asdict(record)}, allow_nan=False)


def from_line(line: str) -> InteractiveRecord | MediaRecord | LearningRecord:
    """The record in one line of JSON.

    Args:
        line: one line of JSON.

    Raises:
        ValueError: for a line that is no JSON object, an unknown kind, an unknown or missing field, or a value out of
            range.

    Example:
        >>> record = LearningRecord(
        ...     "math", "unit tests", [1279], [256], 1, generated=2, retained=1, weight_version="step 7"
        ... )
        >>> from_line(to_line(record)) == record
        True
    """
    try:
        values = json.loads(line)
        kind = KINDS[values.pop("kind")]
    except (ValueError, KeyError, AttributeError, TypeError):
        raise ValueError(f"line must be a JSON object whose kind is one of {sorted(KINDS)}, got {line!r}") from None
    return _made(kind, values)


def read(lines: Iterable[str]) -> list[InteractiveRecord | MediaRecord | LearningRecord]:
    """The records of a log, a list.

    Args:
        lines: an open file or any lines; blank ones are passed over.

    Raises:
        ValueError: naming the bad line.

    Example:
        >>> read(["", to_line(MediaRecord("m", 2_048_000, [0.0, 0.04]))])[0].chunk_times
        (0.0, 0.04)
    """
    records = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                records.append(from_line(line))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    return records


def new_tokens(record: InteractiveRecord) -> Tokens:
    """Input tokens of an interactive record that no cache held (tokens): what prefill has to process.

    Args:
        record: an InteractiveRecord.

    Example:
        >>> new_tokens(InteractiveRecord("q1", "exact answer", None, "Qwen3-8B", "v1", 0, [ModelCall(1443, 1392, 20)]))
        51
    """
    return sum(call.request.new for call in record.calls)


def decode_steps(record: InteractiveRecord) -> Count:
    """Decode steps of an interactive record (calls): each call's output but its first token.

    Args:
        record: an InteractiveRecord.

    Example:
        >>> decode_steps(InteractiveRecord("q1", "exact answer", None, "Qwen3-8B", "v1", 0, [ModelCall(8192, 0, 256)]))
        255
    """
    return sum(call.request.decode_steps for call in record.calls)


def request_records(load: Sequence[Arrival]) -> list[InteractiveRecord]:
    """Records of a load of independent requests to Qwen3-8B, as in section 3.1: one call each, no check.

    Args:
        load: a sequence of `arrivals.Arrival`.

    Returns:
        List of InteractiveRecord.

    Example:
        >>> from workloads_book.measured_runs import replay_load
        >>> len(request_records(replay_load("uniform")))
        480
    """
    return [
        InteractiveRecord(
            f"request {i}",
            "none: fixed output length",
            None,
            "Qwen3-8B",
            "as released",
            time,
            (ModelCall(r.past + r.new, r.past, r.output),),
        )
        for i, (time, r, _) in enumerate(load)
    ]


def task_record(run: str, passed: bool, check: str) -> InteractiveRecord:
    """Record of a measured run of the code task, as in section 3.2, its calls laid end to end with the tools between
    them.

    Args:
        run: "thinking on" or "thinking off".
        passed: whether the task passed its check.
        check: in words.

    Returns:
        InteractiveRecord.

    Assumptions:
        No time between a call, its tool and the next call: hand-over time is not recorded.

    Example:
        >>> record = task_record("thinking on", True, "results and inputs")
        >>> len(record.calls), sum(call.cached_tokens for call in record.calls)
        (4, 4480)
    """
    clock, calls, tools = 0.0, [], []
    for index, r in enumerate(recorded_rounds(run)):
        calls.append(ModelCall(r.call.new + r.call.past, r.call.past, r.call.output, clock, clock + r.model_seconds))
        if r.tool != "none":
            tools.append(ToolCall(r.tool, index, r.tool_seconds))
        clock += r.model_seconds + r.tool_seconds
    return InteractiveRecord("interval merging", check, passed, "Qwen3-8B", "vLLM 0.23", 0, tuple(calls), tuple(tools))
