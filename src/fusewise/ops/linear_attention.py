"""LinearAttention with NumPy: what its four rules do to the state of a head, step by step, in float32.

A head's state is (size of a key, size of a value). With the decay g, the rate b, the key k and the value v of a step:

    linear       S = S + k v^T                     gated        S = exp(g) S + k v^T
    delta        S = S + b k (v - S^T k)^T         gated_delta  S = exp(g) S;  S = S + b k (v - S^T k)^T

and the step's output is scale S^T q for every query head that shares the state.
"""

from __future__ import annotations

import math

import numpy as np

from fusewise.records import record

__all__ = ["RULES", "LinearAttention", "linear_attention", "sizes_of"]

RULES = ("linear", "gated", "delta", "gated_delta")


@record(frozen=True)
class LinearAttention:
    """The sizes of one: `keys` and `values` are numbers in a key and in a value of a head; `heads` of queries share the states of
    `shared` heads, so many each. `decays` and `rates` are how many a step has: for each head, each key's number, or one."""

    samples: int
    steps: int
    heads: int
    shared: int
    keys: int
    values: int
    scale: float
    rule: str
    decays: int
    rates: int

    @property
    def gated(self) -> bool:
        return self.rule.startswith("gated")

    @property
    def corrects(self) -> bool:
        return self.rule.endswith("delta")


def sizes_of(attributes: dict[str, object], shapes: tuple[tuple[int, ...] | None, ...]) -> LinearAttention:
    """The sizes, from a node's attributes and the shapes of its operands (None: absent). `ValueError` where they do not fit."""
    heads, shared = (int(str(attributes.get(name, 0))) for name in ("q_num_heads", "kv_num_heads"))
    rule = str(attributes.get("update_rule", "gated_delta"))
    q, k, v, past, decay, beta = (*shapes, *(None,) * 6)[:6]
    if heads < 1 or shared < 1 or heads % shared or rule not in RULES:
        raise ValueError(f"LinearAttention with {heads} heads over {shared}, and the rule {rule!r}")
    if q is None or k is None or v is None or not len(q) == len(k) == len(v) == 3:
        raise ValueError("LinearAttention on operands that have not three axes")
    size, width = q[2] // heads, v[2] // shared
    wanted = ((q, (*q[:2], heads * size)), (k, (*q[:2], shared * size)), (v, (*q[:2], shared * width)))
    decays = 0 if decay is None else decay[-1]
    rates = 0 if beta is None else beta[-1]
    fits = all(a == b for a, b in wanted) and past in (None, (q[0], shared, size, width))
    fits = fits and all(x is None or (len(x) == 3 and x[:2] == q[:2]) for x in (decay, beta))
    fits = fits and (decay is not None) == rule.startswith("gated") and (beta is not None) == rule.endswith("delta")
    if not fits or (decay is not None and decays not in (shared, shared * size)) or rates not in (0, 1, shared):
        raise ValueError("LinearAttention with operands that do not fit each other")
    scale = float(str(attributes.get("scale", 0.0) or 0.0)) or 1 / math.sqrt(max(1, size))
    return LinearAttention(q[0], q[1], heads, shared, size, width, scale, rule, decays, rates)


def linear_attention(
    s: LinearAttention,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    past: np.ndarray | None,
    decay: np.ndarray | None,
    beta: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The outputs (samples, steps, heads * values) and the last states, in float32; a loop over steps alone."""

    def by_heads(x: np.ndarray, heads: int) -> np.ndarray:
        return x.astype(np.float32).reshape(s.samples, s.steps, heads, -1)

    queries, keys, values = by_heads(q, s.heads), by_heads(k, s.shared), by_heads(v, s.shared)
    first = np.zeros((s.samples, s.shared, s.keys, s.values), np.float32) if past is None else past.astype(np.float32)
    state = first.copy()
    found = np.zeros((s.samples, s.steps, s.heads, s.values), np.float32)
    kept = None if decay is None else np.exp(by_heads(decay, s.shared))
    rate = None if beta is None else by_heads(beta, s.rates)
    for step in range(s.steps):
        if kept is not None:
            state = state * kept[:, step][..., None]
        added = values[:, step]
        if rate is not None:
            added = rate[:, step] * (added - np.einsum("bhkv,bhk->bhv", state, keys[:, step]))
        state = state + keys[:, step][..., None] * added[:, :, None]
        shared = np.repeat(state, s.heads // s.shared, axis=1)
        found[:, step] = np.einsum("bhkv,bhk->bhv", shared, queries[:, step]) * np.float32(s.scale)
    return found.reshape(s.samples, s.steps, -1), state
