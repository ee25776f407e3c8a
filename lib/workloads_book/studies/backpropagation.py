"""Training: products of a backward pass, found by walking the graph; what is kept until when; batches, input and update.

A forward pass is a sequence of `Operation`s, each of which names the earlier ones whose outputs it reads. A gradient is needed
for every trained weight, and for every output between such a weight and the loss. All else follows from that one rule: the
products of the backward pass, what must be kept for them, the FLOPs, and the bytes of state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from workloads import checks
from workloads.numeric import Number
from workloads.units import Count, FlopCount


class _Product(NamedTuple):
    """One matrix product: its name and the shapes of its two factors."""

    name: str
    left: tuple
    right: tuple

    @property
    def result(self) -> tuple[Number, Number]:
        """Shape of the result."""
        return self.left[0], self.right[1]

    @property
    def flops(self) -> FlopCount:
        """FLOPs: 2 for each multiply-add, rows x inner x columns of them."""
        return 2 * self.left[0] * self.left[1] * self.right[1]


@checks.formula
def linear_products(rows: Count, inputs: Count, outputs: Count) -> tuple[_Product, _Product, _Product]:
    """The three products of training a linear layer Y = X W, as `_Product`s: output, input gradient, weight gradient.

    Equation:
        Y = X W, dX = dY W^T, dW = X^T dY; each multiplies the same three sizes, so each is 2 m k n FLOPs.

    Args:
        rows: m, tokens.
        inputs: k, values of a row of X.
        outputs: n. X is [m, k], W [k, n], Y [m, n].

    Raises:
        ValueError: for a size that is not a whole number of at least 1.

    Example:
        >>> [(p.name, p.result, p.flops) for p in linear_products(5, 7, 11)]
        [('output', (5, 11), 770), ('input gradient', (5, 7), 770), ('weight gradient', (7, 11), 770)]
    """
    m, k, n = (checks.whole(size, name, least=1) for size, name in ((rows, "rows"), (inputs, "inputs"), (outputs, "outputs")))
    return _Product("output", (m, k), (k, n)), _Product("input gradient", (m, n), (n, k)), _Product("weight gradient", (k, m), (m, n))


# The graph and the walk back
@dataclass(frozen=True)
class Weight:
    """Parameters of an operation: their name (two operations may share one), how many, whether they are trained."""

    name: str
    parameters: int
    trained: bool = True

    def __post_init__(self):
        checks.keep(self, checks.whole, "", "parameters", of=f" of {self.name!r}", least=1)
        checks.keep(self, checks.flag, "", "trained", of=f" of {self.name!r}")


@dataclass(frozen=True)
class Operation:
    """One step of a forward pass.

    Attributes:
        name: as the table or its user writes it.
        reads: names of the earlier operations whose outputs it takes.
        weight: a Weight, or None.
        flops: of its matrix product, whose two factors are what it reads and its weight, or the two outputs it reads;
            0: no product.
        elements: values in its output (0 where nothing of it is ever stored).
        saves: outputs, its own or among its reads, that its backward step needs beside the factors of a product.

    Raises:
        ValueError: for a product without exactly two factors, or saves that are neither read nor its own.
    """

    name: str
    reads: tuple = ()
    weight: Weight | None = None
    flops: FlopCount = 0
    elements: int = 0
    saves: tuple = ()

    def __post_init__(self):
        checks.keep(self, checks.nonnegative, "", "flops", "elements", of=f" of {self.name!r}")
        if self.flops and len(self.reads) + (self.weight is not None) != 2:
            raise ValueError(f"product {self.name!r} must have two factors, got reads {self.reads!r} and weight {self.weight!r}")
        for name in self.saves:
            checks.one_of(name, f"saves of {self.name!r}", (*self.reads, self.name))


def _needs_gradient(graph):
    """Names of the operations whose outputs need a gradient: those with a trained weight of their own or anywhere
    before them.
    """
    seen, found = set(), set()
    for op in graph:
        for name in op.reads:
            checks.one_of(name, f"reads of {op.name!r}", tuple(seen))
        if op.name in seen:
            raise ValueError(f"operations must have names used once, got {op.name!r} twice")
        seen.add(op.name)
        if (op.weight and op.weight.trained) or found.intersection(op.reads):
            found.add(op.name)
    checks.some(seen, "graph", "operation")
    return found


class _BackwardStep(NamedTuple):
    """What one operation does on the way back: gradients passed on to what it read, its weight's gradient, FLOPs,
    outputs needed.
    """

    name: str
    input_gradients: tuple
    weight_gradient: bool
    flops: FlopCount
    needs: tuple


@checks.formula
def backward(graph: Sequence[Operation]) -> tuple[_BackwardStep, ...]:
    """Backward steps of a graph, last operation first; an operation with no gradient to pass on or to keep has none.

    Equation:
        a product of F FLOPs takes F for each of its factors that needs a gradient, and needs the other factor for it.

    Args:
        graph: Operations in forward order.

    Returns:
        Tuple of `_BackwardStep`.

    Raises:
        ValueError: for an empty graph, a name used twice, or a read that no earlier operation provides.

    Example:
        >>> w = Weight("W", 77)
        >>> backward([Operation("x", elements=35), Operation("y", ("x",), w, flops=770)])
        (_BackwardStep(name='y', input_gradients=(), weight_gradient=True, flops=770, needs=('x',)),)
    """
    graded = _needs_gradient(graph)
    return tuple(_step(op, graded) for op in reversed(graph) if op.name in graded)


def _step(op, graded):
    passed = tuple(name for name in op.reads if name in graded)
    trained = op.weight is not None and op.weight.trained
    needs = _other_factors(op, graded, trained) if op.flops else ()
    return _BackwardStep(op.name, passed, trained, op.flops * (len(passed) + trained), tuple(dict.fromkeys((*needs, *op.saves))))


def _other_factors(op, graded, trained):
    if op.weight:
        return op.reads if trained else ()
    return tuple(mine for mine, other in zip(op.reads, reversed(op.reads)) if other in graded)


@checks.formula
def forward_flops(graph: Sequence[Operation]) -> FlopCount:
    """FLOPs (count) of the forward pass: the sum over all operations.

    Args:
        graph: Operations in forward order.

    Example:
        >>> forward_flops([Operation("x"), Operation("y", ("x",), Weight("W", 77), flops=770)])
        770
    """
    return sum(op.flops for op in graph)


@checks.formula
def backward_flops(graph: Sequence[Operation]) -> FlopCount:
    """FLOPs (count) of the backward pass: the sum over the steps of `backward`.

    Args:
        graph: Operations in forward order.

    Example:
        >>> backward_flops([Operation("x"), Operation("y", ("x",), Weight("W", 77), flops=770)])
        770
    """
    return sum(step.flops for step in backward(graph))


@checks.formula
def kept_elements(graph: Sequence[Operation]) -> dict[str, Count]:
    """Values (count) of each output that must wait for the backward pass, a dict in forward order.

    Args:
        graph: Operations in forward order.

    Example:
        >>> kept_elements(
        ...     [Operation("x", elements=35), Operation("y", ("x",), Weight("W", 77), flops=770, elements=55)]
        ... )
        {'x': 35}
    """
    needed = {name for step in backward(graph) for name in step.needs}
    return {op.name: op.elements for op in graph if op.name in needed}


class _Kept(NamedTuple):
    """Something that is kept: its name, its kind, first and last event of its life, how many values."""

    name: str
    kind: str
    start: int
    end: int
    elements: int


@checks.formula
def lifetimes(graph: Sequence[Operation]) -> tuple[_Kept, ...]:
    """How long each output, each gradient of an output and each weight gradient is kept, as `_Kept`s.

    Events: the forward step of operation i (of n) is event i, its backward step event 2n - 1 - i, the update event 2n.
    An "output" lives to its last reader, forward or backward; a "gradient" from the first backward step that
    contributes to it to the step that uses it up; a "weight gradient" from its first contribution to the update.

    Args:
        graph: Operations in forward order.

    Example:
        >>> [
        ...     k[:4]
        ...     for k in lifetimes(
        ...         [Operation("x", elements=35), Operation("y", ("x",), Weight("W", 77), flops=770, elements=55)]
        ...     )
        ... ]
        [('x', 'output', 0, 2), ('y', 'output', 1, 1), ('y', 'gradient', 2, 2), ('W', 'weight gradient', 2, 4)]
    """
    place = {op.name: i for i, op in enumerate(graph)}
    last = 2 * len(graph) - 1
    uses, givers, weights = {op.name: [i] for i, op in enumerate(graph)}, {}, {}
    for i, op in enumerate(graph):
        for name in op.reads:
            uses[name].append(i)
    for step in backward(graph):
        event, weight = last - place[step.name], graph[place[step.name]].weight
        for name in step.needs:
            uses[name].append(event)
        for name in step.input_gradients:
            givers.setdefault(name, event)
        if weight and step.weight_gradient:
            weights.setdefault(weight.name, _Kept(weight.name, "weight gradient", event, last + 1, weight.parameters))
    found = [_Kept(op.name, "output", i, max(uses[op.name]), op.elements) for i, op in enumerate(graph)]
    found += [
        _Kept(s.name, "gradient", givers.get(s.name, last - place[s.name]), last - place[s.name], graph[place[s.name]].elements)
        for s in backward(graph)
    ]
    return (*found, *weights.values())


@checks.formula
def elements_held(kept: Sequence[_Kept], event: Count) -> Count:
    """Values (count) alive during one event, of the `_Kept`s given.

    Equation:
        sum of the elements of all whose start <= event <= end.

    Args:
        kept: from `lifetimes`.
        event: its number.

    Example:
        >>> elements_held([_Kept("x", "output", 0, 2, 35), _Kept("y", "output", 1, 1, 55)], 1)
        90
    """
    event = checks.whole(event, "event")
    for k in kept:
        checks.whole(k.start, f"start of {k.name!r}")
        checks.whole(k.end, f"end of {k.name!r}")
        checks.nonnegative(k.elements, f"elements of {k.name!r}")
    return sum(k.elements for k in kept if k.start <= event <= k.end)
