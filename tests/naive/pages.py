"""A paged KV cache, page by page: the sequences that an engine with one admits.

Each device keeps the keys and values of its own layers in pages of some tokens, whose number is
fixed when the engine starts: what the weights leave. A sequence is admitted when every device has
the pages for all its tokens, in all the layers there.
"""

from __future__ import annotations

from collections.abc import Sequence


def admitted(
    free: Sequence[float], layers: Sequence[int], token_bytes: int, context: int, page: int
) -> int:
    """`free[device]` bytes beside the weights; `token_bytes` of one token in one layer."""
    pages = [
        int(room // (page * token_bytes * count)) * count if count else 0
        for room, count in zip(free, layers, strict=True)
    ]
    sequences = 0
    while True:
        for device, count in enumerate(layers):
            for _ in range(count):
                tokens = 0
                while tokens < context:
                    pages[device] -= 1
                    tokens += page
            if pages[device] < 0:
                return sequences
        sequences += 1
