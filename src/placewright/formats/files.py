"""Reading and writing files so that nothing is ever half-read or half-written.

Every reader here turns a fault of the file into one sentence (`FormatError`).
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from placewright.errors import FormatError
from placewright.formats.faults import faults_of

if TYPE_CHECKING:
    from pydantic import BaseModel

    Model = TypeVar("Model", bound=BaseModel)

MAX_FILE_BYTES = 4 * 2**30
MAX_YAML_DEPTH = 100
NO_STANDARD_INPUT = "-: nothing is read from standard input by this name; give a file or /dev/stdin"
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
ARCHIVE = b"PK\x03\x04"
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def read_bytes(path: str | Path) -> bytes:
    path = Path(path)
    try:
        if path.is_dir():
            raise FormatError(f"{path}: is a directory; give a file")
        if path.is_char_device() or path.is_block_device():  # some never end
            raise FormatError(f"{path}: is a device; give a file")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise FormatError(f"{path}: {size} bytes is more than the {MAX_FILE_BYTES} allowed")
        return path.read_bytes()
    except FileNotFoundError:
        if str(path) == "-":
            raise FormatError(NO_STANDARD_INPUT) from None
        raise FormatError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FormatError(f"{path}: cannot be read ({reason})") from None


def decode_text(content: bytes, path: str | Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8"
        ) from None


def refuse_wrapped(content: bytes, path: str | Path) -> None:
    """FormatError for a file that stands for another one, or holds it in another form."""
    if content.startswith(_LFS_POINTER):
        raise FormatError(
            f"{path}: is a Git LFS pointer, not the file itself; fetch that with 'git lfs pull'"
        )
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FormatError(f"{path}: is UTF-16 text; save the file as UTF-8")
    for start, method in _COMPRESSED.items():
        if content.startswith(start):
            raise FormatError(
                f"{path}: is compressed ({method}); unpack it, and give what it holds"
            )


def refuse_archive(path: str | Path) -> NoReturn:
    raise FormatError(f"{path}: is a zip archive; unpack it, and give the file that it holds")


def _refuse_binary(content: bytes, path: str | Path, wanted: str) -> None:
    """FormatError for what is no text, such as a model where a plan belongs."""
    refuse_wrapped(content, path)
    if content.startswith(ARCHIVE):
        refuse_archive(path)
    if content.startswith(b"\x08") or b"\x00" in content[:4096]:
        raise FormatError(f"{path}: is an ONNX model or another binary file; give {wanted}")


def parse_json(text: str, path: str | Path) -> Any:
    """JSON as the standard has it: NaN and Infinity, which Python would take, are refused."""

    def refuse(constant: str) -> Any:
        raise FormatError(f"{path}: {constant} is not a number JSON allows; write a finite number")

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            _refuse_twice([key for key, _ in pairs], path)
        return found

    if not text or text.isspace():
        raise FormatError(f"{path}: the file is empty")
    try:
        document = json.loads(text, parse_constant=refuse, object_pairs_hook=object_of)
    except json.JSONDecodeError as error:
        raise FormatError(
            f"{path}: not valid JSON, line {error.lineno} column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise FormatError(f"{path}: JSON nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits
        raise FormatError(f"{path}: not valid JSON: {error}") from None
    if "\\ud" in text or "\\uD" in text:
        _refuse_lone_surrogates(document, path)
    return document


def _refuse_twice(keys: list[str], path: str | Path) -> None:
    """Of a key given twice, readers take the one or the other, without a word."""
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise FormatError(f"{path}: field {key} is there twice; leave one of them")
        seen.add(key)


def _refuse_lone_surrogates(document: Any, path: str | Path) -> None:
    """JSON can escape halves of a character; text with one can be neither printed nor saved."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])[1:-1]
        raise FormatError(
            f"{path}: a text holds {half}, half a character; write whole characters"
        ) from None


def parse_yaml(text: str, path: str | Path) -> Any:
    import yaml

    loader = _yaml_loader()
    try:
        _refuse_deep_yaml(text, loader, path)
        _refuse_keys_twice(yaml.compose(text, Loader=loader), path)
        return yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1} column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        if "nesting depth" in problem:  # newer versions of libyaml have a limit of their own
            raise FormatError(f"{path}: YAML nested too deeply") from None
        raise FormatError(f"{path}: not valid YAML{where}: {problem}") from None
    except (RecursionError, ValueError) as error:
        raise FormatError(f"{path}: not valid YAML: {error}") from None
    except (AttributeError, LookupError):  # what the library makes of '!!bool maybe'
        raise FormatError(
            f"{path}: not valid YAML: a tag such as !!bool does not fit its value; leave it out"
        ) from None


@cache
def _yaml_loader() -> Any:
    """What takes ``1e-6`` for a number, as JSON does; YAML 1.1 takes it for a word."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    number = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    return Loader


def _refuse_deep_yaml(text: str, loader: Any, path: str | Path) -> None:
    """libyaml's loader recurses in C, where a file nested deeply enough ends the process."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_YAML_DEPTH:
            raise FormatError(f"{path}: YAML nested too deeply")


def _refuse_keys_twice(root: Any, path: str | Path) -> None:
    """In any mapping below a node of YAML, None for an empty file."""
    import yaml

    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            scalars = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            _refuse_twice(scalars, path)
            waiting.extend(part for pair in node.value for part in pair)
        elif isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)


def read_document(
    path: str | Path, wanted: str = "a JSON or YAML file", *, may_be_yaml: bool = False
) -> Any:
    """The content of a JSON or YAML file: JSON unless it is named .yaml or .yml.

    With `may_be_yaml` whatever does not begin as JSON does is YAML, by any name. `wanted` is what
    to give in place of a file that is no text.
    """
    content = read_bytes(path)
    _refuse_binary(content, path, wanted)
    text = decode_text(content, path)
    if Path(path).suffix.lower() in (".yaml", ".yml"):
        return parse_yaml(text, path)
    if may_be_yaml and text.strip() and not text.lstrip().startswith(("{", "[")):
        return parse_yaml(text, path)
    return parse_json(text, path)


def check_format(document: Any, expected: str, path: str | Path) -> None:
    """Refuse a document that is not of the kind and version `expected`, such as ``…graph/1``."""
    if not isinstance(document, dict):
        raise FormatError(f'{path}: the top level must be an object with "format": "{expected}"')
    found = document.get("format")
    if found == expected:
        return
    if found is None:
        raise FormatError(f'{path}: field format is missing; write "format": "{expected}"')
    kind = expected.partition("/")[0]
    if isinstance(found, str) and found.startswith(kind + "/"):
        raise FormatError(
            f"{path}: format is {found!r}, this version of placewright reads {expected!r}; "
            "update placewright or write the file again"
        )
    raise FormatError(f"{path}: format is {found!r}, expected {expected!r}")


def validate(model: type[Model], document: Any, path: str | Path) -> Model:
    """`document` as a `model`; the first fault as one sentence with the field's path."""
    from pydantic import ValidationError

    try:
        return model.model_validate(document)
    except ValidationError as error:
        faults = faults_of(error, document, model)
        at_fault = list(dict.fromkeys(each.field for each in faults))
        more = f" (and {len(at_fault) - 1} more)" if len(at_fault) > 1 else ""
        raise FormatError(f"{path}: field {at_fault[0]}: {faults[0].message}{more}") from None


def write_text(path: str | Path, text: str) -> None:
    """Write `text` as UTF-8, all of it or nothing."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write `content` to a temporary file beside `path`, then rename: all of it or nothing.

    A symbolic link stays, and what it points to is written. A file that is there keeps its mode.
    """
    path = Path(path)
    temporary = None
    try:
        with writing(path):
            _refuse_device(path)
            target = path.resolve()
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            mode = target.stat().st_mode if target.exists() else 0o666 & ~umask()
            Path(temporary).chmod(stat.S_IMODE(mode))
            Path(temporary).replace(target)
    except RuntimeError:  # what `resolve` makes of it
        raise FormatError(f"{path}: is a link that leads back to itself; give a file") from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """What the system has against it, such as a name that is too long, is a FormatError."""
    try:
        yield
    except OSError as error:
        raise FormatError(f"{path}: cannot be written ({error.strerror})") from None


def check_writable(path: Path) -> None:
    """FormatError if `path` is there and no file, or has no directory to be in."""
    with writing(path):
        if not path.parent.is_dir():
            raise FormatError(f"{path}: there is no directory {path.parent}; make it first")
        if path.is_dir():
            raise FormatError(f"{path}: cannot be written (Is a directory)")
        _refuse_device(path)


def _refuse_device(path: Path) -> None:
    """A device or a pipe would be gone once a file is renamed to it."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise FormatError(f"{path}: is a device or a pipe; give a file")
    if _is_stream(path):
        raise FormatError(f"{path}: is a stream of this process; give the file by its name")


def _is_stream(path: Path) -> bool:
    """Whether it is a name like `/dev/stdin`, which `< FILE` makes another name of FILE."""
    names = [path, *([path.parent / path.readlink()] if path.is_symlink() else [])]
    return any(os.path.realpath(name.parent).startswith("/proc/") for name in names)


def write_json(path: str | Path, document: Any) -> None:
    write_text(path, json_text(document) + "\n")


def json_text(document: Any) -> str:
    return json.dumps(document, allow_nan=False, ensure_ascii=False)


def umask() -> int:
    """The permissions that new files of this process do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
