"""Bounds the cost of a JSON Schema: how often it unfolds, and how much work it can be to check a
value. The theory is in `json_schema_graph`, whose paths are counted here.

Must not know: how a schema is written.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from protocol.bytes.json_schema_graph import LEAF, TOO_MUCH, Node, Work
from protocol.bytes.json_strict import MAX_DEPTH

UNIQUE = 5
"""Work for each value inside a list whose items are to be unique."""
_NONE = Work(0, 0)


class _Sums(NamedTuple):
    """Of one node, with all that it applies."""

    unfolded: float
    again: float
    here: Work
    here_again: Work
    inside: Work
    inside_again: Work


class Bounds(NamedTuple):
    """How often a schema unfolds, what compiling it takes, the most work for one value, and what
    references lead back to."""

    expansions: int
    compiling: float
    work: Work
    again: tuple[Node, ...]


def bounds_of(root: Node) -> Bounds:
    """Count the paths. Linear in the graph."""
    sums: dict[Node, _Sums] = {}
    cut: dict[Node, None] = {}
    compiling = 0.0
    for node in _inside_out(root, cut):
        sums[node] = _sum(node, sums)
        compiling += node.compiling
    work, expansions = _NONE, 0.0
    for node in dict.fromkeys((root, *cut)):
        its = sums[node]
        work, expansions = work.plus(its.here.max(its.inside)), expansions + its.unfolded
    return Bounds(
        int(min(TOO_MUCH, expansions)),
        compiling,
        Work(min(TOO_MUCH, work.value), min(TOO_MUCH, work.text)),
        tuple(cut),
    )


def _inside_out(root: Node, cut: dict[Node, None]) -> Iterator[Node]:
    """Give every node after those that it applies; `cut` takes the nodes that references lead back
    to."""
    closed: dict[Node, bool] = {root: False}
    path = [(root, _applied(root))]
    while path:
        node, following = path[-1]
        for child in following:
            if (done := closed.get(child)) is None:
                closed[child] = False
                path.append((child, _applied(child)))
                break
            if not done:
                cut[child] = None
        else:
            path.pop()
            closed[node] = True
            yield node


def _applied(node: Node) -> Iterator[Node]:
    return chain(node.same, node.inside())


_CUT = _Sums(1, 0, LEAF, _NONE, _NONE, _NONE)


def _sum(node: Node, sums: dict[Node, _Sums]) -> _Sums:
    work = node.work.plus(Work(UNIQUE * MAX_DEPTH, 0)) if node.is_unique else node.work
    unfolded, again = 1.0, 0.0
    children = node.inside()
    here, here_again, inside, inside_again = (
        work,
        _NONE,
        _most_inside(node, sums) if children else _NONE,
        _NONE,
    )
    for child in children:
        unfolded += sums.get(child, _CUT).unfolded
    for child in node.same:
        its = sums.get(child, _CUT)
        unfolded, again = unfolded + its.unfolded, again + its.unfolded + its.again
        here, here_again = here.plus(its.here), here_again.plus(its.here).plus(its.here_again)
        inside, inside_again = (
            inside.plus(its.inside),
            inside_again.plus(its.inside).plus(its.inside_again),
        )
    if node.asks_again:
        unfolded, here, inside = unfolded + again, here.plus(here_again), inside.plus(inside_again)
    return _Sums(unfolded, again, here, here_again, inside, inside_again)


def _most_inside(node: Node, sums: dict[Node, _Sums]) -> Work:
    """For any one value inside: of named members and places one applies, of the rest each may."""
    member = _most(node.by_name.values(), sums)
    for group in (node.by_pattern, node.other, node.names):
        for child in group:
            member = member.plus(_most((child,), sums))
    place = _most(node.by_place, sums)
    for group in (node.items, node.each):
        for child in group:
            place = place.plus(_most((child,), sums))
    return member.max(place)


def _most(nodes: Iterable[Node], sums: dict[Node, _Sums]) -> Work:
    value = text = 0.0
    for node in nodes:
        its = sums.get(node, _CUT)
        value, text = (
            max(value, its.here.value, its.inside.value),
            max(text, its.here.text, its.inside.text),
        )
    return Work(value, text)
