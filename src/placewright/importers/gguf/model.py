"""`read_gguf`: the graph of a GGUF file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from placewright.errors import FormatError
from placewright.graph import WINDOWS, Graph
from placewright.importers.gguf.architectures import ARCHITECTURES
from placewright.importers.gguf.header import Header, read_header
from placewright.importers.gguf.options import GgufOptions, read_options
from placewright.importers.gguf.parts import Parts, Sizes
from placewright.importers.gguf.writing import CACHE_ITEM_BYTES, Decoder
from placewright.importers.zoo.blocks import Writer
from placewright.units import printable


def read_gguf(path: str | Path, query: str = "") -> Graph:
    """The graph of a decoder in a GGUF file; `query` as in ``FILE?phase=decode&context=8192``.

    Every weight has the file's bytes. FormatError for a file that is none, is cut off, or is of an
    architecture that is not known; OptionError for a key or a value that does not exist.

    >>> read_gguf("llama-3.1-8b-q4_k_m.gguf", "phase=decode").name  # doctest: +SKIP
    'llama-3.1-8b-q4_k_m'
    """
    path = Path(path)
    header = read_header(path)
    architecture = _architecture(header)
    sizes, parts = Sizes(header, architecture), Parts(header)
    longest = sizes.find("context_length")
    options = read_options(query, path, longest if isinstance(longest, int) else None)
    writer = Writer(path.name.removesuffix(".gguf"), options.dtype)
    decoder = Decoder(writer, parts, sizes, ARCHITECTURES[architecture], options)
    decoder.write()
    parts.check_all_taken(architecture)
    writer.builder.input_samples = options.batch
    writer.builder.attributes.update(_facts(header, architecture, decoder, options))
    writer.parameters = sum(tensor.elements for tensor in header.tensors.values())
    return writer.finish()


def _architecture(header: Header) -> str:
    found = header.metadata.get("general.architecture")
    if not isinstance(found, str):
        raise FormatError(f"{header.path}: says no general.architecture; convert it again")
    if found not in ARCHITECTURES:
        raise FormatError(
            f"{header.path}: its architecture '{printable(found)}' is not known; known are "
            f"{', '.join(ARCHITECTURES)}; use its hf: configuration instead"
        )
    return found


def _facts(
    header: Header, architecture: str, decoder: Decoder, options: GgufOptions
) -> dict[str, object]:
    """Attributes of the graph; `kv_bytes_per_token` of one sequence, sliding windows left aside."""
    by_type: Counter[str] = Counter()
    for tensor in header.tensors.values():
        by_type[tensor.type.name] += tensor.bytes
    kept = sum(decoder.heads(layer).cache_numbers for layer in range(decoder.layers))
    facts: dict[str, object] = {
        "architecture": architecture,
        "layers": decoder.layers,
        "dtype": options.dtype,
        "stored_bytes": sum(by_type.values()),
        "stored_dtypes": ", ".join(f"{name} {count}" for name, count in by_type.most_common()),
        "kv_bytes_per_token": kept * CACHE_ITEM_BYTES,
    }
    if options.phase != "forward":
        facts |= {"phase": options.phase, "context": options.context}
        facts |= {WINDOWS: decoder.windows} if decoder.windows else {}
    return facts
