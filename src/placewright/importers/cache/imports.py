"""Graphs of slow sources: as they were kept, or made and then kept.

Neither torch nor Transformers is imported where a graph is kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from placewright.errors import PlacewrightWarning
from placewright.graph import Graph
from placewright.importers.cache import keys, store
from placewright.importers.cache.store import KeptImport, Key
from placewright.importers.cache.watching import Watch, watched


def hf_graph(config: str, training: bool = False, *, cache_tokens: int | None = None) -> Graph:
    """The graph of ``hf:CONFIG``; see `torch.sources.from_hf`."""

    def make() -> Graph:
        from placewright.importers.torch.sources import from_hf

        return from_hf(config, training, cache_tokens=cache_tokens)

    return _kept(lambda: keys.hf_key(config, training, cache_tokens), make)


def factory_graph(spec: str, training: bool = False) -> Graph:
    """The graph of ``torch:PACKAGE.MODULE:FACTORY``; see `torch.sources.from_factory`.

    It is kept with the files that its code was loaded from and has read, as far as `watching`
    sees them.
    """

    def make() -> Graph:
        from placewright.importers.torch.sources import from_factory

        return from_factory(spec, training)

    if store.folder() is None or (key := keys.factory_key(spec, training)) is None:
        return make()
    found = store.read(key)
    if found is not None:
        return _as_kept(found)
    with _remarks() as remarks, watched() as watch:
        graph = make()
    files = _digests(watch)
    if files is not None:
        store.write(key, KeptImport(graph, tuple(remarks), files))
    return graph


def pt2_graph(path: Path, content: bytes) -> Graph:
    """The graph of a ``.pt2`` file; see `torch.archive.read_pt2`."""

    def make() -> Graph:
        from placewright.importers.torch.archive import read_pt2

        return read_pt2(path, content=content)

    return _kept(lambda: keys.pt2_key(path, content), make)


def onnx_graph(path: Path, sizes: Mapping[str, int], content: bytes) -> Graph:
    """The graph of an ONNX file; see `onnx.model.read_onnx`."""

    def make() -> Graph:
        from placewright.importers.onnx.model import read_onnx

        return read_onnx(path, dimensions=sizes, content=content)

    return _kept(lambda: keys.onnx_key(path, sizes, content), make)


def _kept(key_of: Callable[[], Key | None], make: Callable[[], Graph]) -> Graph:
    if store.folder() is None or (key := key_of()) is None:
        return make()
    found = store.read(key)
    if found is not None:
        return _as_kept(found)
    with _remarks() as remarks:
        graph = make()
    if key_of() == key:  # no file has changed meanwhile
        store.write(key, KeptImport(graph, tuple(remarks)))
    return graph


def _as_kept(found: KeptImport) -> Graph:
    for remark in found.remarks:
        warnings.warn(remark, PlacewrightWarning, stacklevel=4)
    return found.graph


@contextmanager
def _remarks() -> Iterator[list[str]]:
    """The text of every PlacewrightWarning; they and all others are then given as they were."""
    texts: list[str] = []
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PlacewrightWarning)
            yield texts
    finally:
        for each in caught:
            if issubclass(each.category, PlacewrightWarning):
                texts.append(str(each.message))
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def _digests(watch: Watch) -> dict[str, str] | None:
    paths = watch.files()
    return None if paths is None else {str(path): store.digest(path) for path in paths}
