"""Which ops are alike: a family of ops comes as near to a device's peaks as each other.

>>> family_of("aten.addmm.default"), family_of("Gemm"), family_of("aten.gelu.default")
('product', 'product', 'elementwise')
"""

from __future__ import annotations

import re
from functools import cache

VIEW = "view"
"""The family of ops that neither compute nor move anything: what counts is that they are called."""

# The first that matches counts.
_PATTERNS = (
    ("attention", r"attention"),
    ("convolution", r"conv(?!ert)"),
    ("product", r"linear(?!interp)|addmm|baddbmm|\bmm\b|bmm|matmul|gemm|grouped_mm|\bdot\b|einsum"),
    ("softmax", r"softmax"),
    ("normalization", r"norm"),
    ("pooling", r"pool"),
    ("reduction", r"\b(sum|mean|var|std|amax|amin|max|min|argmax|argmin|prod|any|all)\b"
                  r"|reduce|cumsum|topk|sort|nonzero|histc|bincount|logsumexp"),
    ("gather", r"embedding|gather|scatter|index|take"),
    ("copy", r"\b(cat|concat|stack|clone|copy|_to_copy|to|pad|constant_pad_nd|repeat|expand|roll"
             r"|flip|split|slice|transpose|contiguous|full|full_like|zeros|zeros_like|ones|arange"
             r"|triu|tril|new_zeros|fill|reshape|cast)\b"),
)  # fmt: skip
_COMPILED = tuple((family, re.compile(pattern)) for family, pattern in _PATTERNS)
FAMILIES = (*(family for family, _ in _PATTERNS), "elementwise", VIEW)


@cache
def family_of(op: str) -> str:
    """The family of an op by its name, that of a signature or the type an importer gave it."""
    words = op.lower().removesuffix(".default").replace("::", ".")
    words = words.replace("_copy", " _to_copy") if words.endswith("_copy") else words
    return next((family for family, pattern in _COMPILED if pattern.search(words)), "elementwise")
