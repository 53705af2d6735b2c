"""The digest of a model folder, over all its files that could change a vector, and other files that loading opens.

Files that Python opens are seen by an audit hook; those that libraries in C++ and Rust open by fanotify or inotify (Linux).
Where the system does not report them (`Opened.blind`), the vectors of a model that runs such code are not cached.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import mmap
import os
import re
import struct
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from stsbench.encoders.model_folder import check_inside, read_settings
from stsbench.errors import EncoderError
from stsbench.files import sha256_file, stamp

_SINGLE = ("model.safetensors", "pytorch_model.bin")  # in the order in which from_pretrained looks for them
_TOKENIZER_SUFFIXES = {".json", ".txt", ".model", ".bpe", ".tiktoken"}  # what tokenizers are stored in
_NOT_TOKENIZER = {
    "config.json", "modules.json", "README.txt", "sentence_bert_config.json", "config_sentence_transformers.json",
    "generation_config.json", "data_config.json", "train_script.json", "trainer_state.json", "model_index.json",
    "training_args.json", "all_results.json", "train_results.json", "eval_results.json", "stsbench.json",
}
# Files that no library reads a model from, unless a settings file or a graph names them, or they are opened (`Opened`). All
# others count: with a file too many texts are encoded again, with a file too few a number is wrong.
_FOLDERS = {".git", ".cache", "__pycache__"}  # .cache: notes of the Hub's client on a download
_SUFFIXES = {".md", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf"}
_NAMES = {".gitattributes", ".gitignore", ".DS_Store"}
_SETTINGS = ("config.json", "modules.json", "index.json")  # name endings of files that may name other files
_LOCATION = re.compile(rb"\x0a\x08location\x12")  # ONNX's external data: protobuf writes the key before its value
_EVENTS = ("open", "sqlite3.connect", "ctypes.dlopen")  # events of the audit hook whose first argument is a path
_IN_OPEN, _IN_Q_OVERFLOW = 0x20, 0x4000  # fanotify's numbers, too
_FAN_CLOEXEC, _FAN_NONBLOCK, _FAN_REPORT_FID, _FAN_MARK_ADD, _AT_FDCWD = 0x1, 0x2, 0x200, 0x1, -100
_CODE = f"{os.sep}transformers_modules{os.sep}"  # where transformers runs copies of a folder's own files
# Folders whose files are not a model's: those of libraries and of the system.
_ELSEWHERE = tuple(f"{folder}{os.sep}" for folder in (
    *map(os.path.realpath, (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())), "/proc", "/sys", "/dev", "/etc",
))
_PACKAGES = (_CODE, f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
BLIND = "runs code of its own, and this system does not tell which files that opens: its vectors are not cached"
_watching: list[Opened] = []
_opens: Counter[str] = Counter()  # how often the system reported that a file was opened


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files that from_pretrained reads; EncoderError if there are none, a shard is missing or an index
    broken.

    `transformers_weights` in config.json names another file than the usual ones, and comes first.
    """
    named = read_settings(folder / "config.json").get("transformers_weights")
    if named is not None and not isinstance(named, str):
        raise EncoderError(f"{folder / 'config.json'}: transformers_weights is not the name of a file")
    for name in (named,) if named else _SINGLE:
        check_inside(folder, name, "config.json: transformers_weights")
        index = folder / (name if name.endswith(".index.json") else f"{name}.index.json")
        if (folder / name).is_file() and index.name != name:
            return [folder / name]
        if index.is_file():
            return _shards(folder, index)
    raise EncoderError(f"{folder} holds no weights ({named or 'model.safetensors or pytorch_model.bin'})")


def _shards(folder: Path, index: Path) -> list[Path]:
    stored = read_settings(index).get("weight_map")
    if not isinstance(stored, dict) or not stored or not all(isinstance(shard, str) for shard in stored.values()):
        raise EncoderError(f"cannot read {index}: it has no weight_map of weights and their files")
    shards = sorted(set(stored.values()))
    for shard in shards:
        check_inside(folder, shard, f"{index.name}: weight_map")
    if missing := [shard for shard in shards if not (folder / shard).is_file()]:
        raise EncoderError(f"{folder}: weight file {missing[0]} is missing")
    return [folder / shard for shard in shards]


def tokenizer_digest(folder: Path) -> str:
    """Return sha256 over the contents of the tokenizer's files."""
    return files_digest(_tokenizer_files(folder))


def model_digest(folder: Path) -> str:
    """Return sha256 over all files of a model except the tokenizer's."""
    tokenizer = set(_tokenizer_files(folder))
    return files_digest([path for path in model_files(folder) if path not in tokenizer])


def _tokenizer_files(folder: Path) -> list[Path]:
    named = {value for key, value in read_settings(folder / "tokenizer_config.json").items() if key.endswith("_file")
             and isinstance(value, str)}
    return sorted(
        path for path in folder.iterdir()
        if (path.suffix in _TOKENIZER_SUFFIXES or path.name in named) and path.name not in _NOT_TOKENIZER
        and not path.name.endswith(".index.json") and path.is_file()
    )


def files_digest(paths: list[Path]) -> str:
    """Return sha256 over the names and contents of `paths`, in their order."""
    sha = hashlib.sha256()
    for path in paths:
        sha.update(f"{path.name} {sha256_file(path)}\n".encode())
    return sha.hexdigest()


def model_files(folder: Path) -> list[Path]:
    """Return every regular file below `folder`, sorted, except Markdown, pictures and the like; links are followed."""
    files = [path for path in walk(folder) if path.is_file()]
    named = [path.read_text("utf-8", "replace") for path in files if path.name.endswith(_SETTINGS)]
    named += [name for path in files if path.suffix == ".onnx" for name in external_data(path)]
    return sorted(path for path in files if not _besides(path.relative_to(folder), " ".join(named)))


def external_data(graph: Path) -> list[str]:
    """Return the files that a .onnx file names for its tensors, those of nested graphs included, as paths from its
    folder."""
    if not graph.stat().st_size:
        return []
    names = set()
    with graph.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for key in _LOCATION.finditer(content):
            value = content[key.end():key.end() + 4100]  # its length, in a byte or two, before it
            if len(value) > 1 and value[0] & 128:
                value = value[2:2 + (value[0] & 127 | value[1] << 7)]
            else:
                value = value[1:1 + value[0]] if value else b""
            names.add(value.decode("utf-8", "replace"))
    return sorted(name for name in names if "\0" not in name)


def folder_digest(folder: Path, bases: Iterable[Path] = (), opened: Iterable[Path] = ()) -> str:
    """Return sha256 over the paths and contents of model_files(folder), and of the folders that it builds on.

    opened: further files; one outside of all folders counts by its name and content, wherever it is.
    """
    sha, opened = hashlib.sha256(), set(opened)
    for root in (folder, *bases):
        sha.update(b"folder\n")
        inside = {path for path in opened if path.is_relative_to(root)}
        opened -= inside
        for path in sorted({*model_files(root), *inside}):
            sha.update(f"{path.relative_to(root).as_posix()} {sha256_file(path)}\n".encode("utf-8", "surrogateescape"))
    for line in sorted(f"outside {path.name} {sha256_file(path)}\n" for path in opened):
        sha.update(line.encode("utf-8", "surrogateescape"))
    return sha.hexdigest()


def walk(folder: Path) -> Iterator[Path]:
    """Yield every file below `folder`, through links too."""
    visited: set[str] = set()
    for root, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        if real in visited:  # a link that leads back up
            folders.clear()
            continue
        visited.add(real)
        yield from (Path(root, name) for name in names)


def _besides(path: Path, name: str) -> bool:
    """Return whether no model is read from a file (_FOLDERS, _SUFFIXES, _NAMES), and no settings file or graph names it."""
    for part in path.parts[:-1]:
        if part in _FOLDERS:
            return part not in name
    return (path.name in _NAMES or path.suffix.lower() in _SUFFIXES) and path.name not in name


class Opened:
    """A context in which the opening of files is watched; it may be entered again, and then adds to what it knows.

    blind: native code may have opened a file that the digest leaves out, and the system does not report it.
    """

    def __init__(self, sources: Sequence[Path], files: Iterable[Path] = (), native: bool = False) -> None:
        """Watch a model's folders. sources: the model's folder, and those that it builds on; files: files known to be
        opened; native: whether C++ or Rust may open files of unknown names, for a graph or for the folder's own code."""
        self.sources = tuple(sources)
        covered = [path for root in self.sources for path in model_files(root)]
        self._roots = tuple(os.path.realpath(root) + os.sep for root in self.sources)
        self._covered = {os.path.realpath(path) for path in covered}
        self._left = {os.path.realpath(path): path for root in self.sources for path in walk(root) if path.is_file()}
        self._left = {real: path for real, path in self._left.items() if real not in self._covered}
        self._stamps = {path: stamp(path) for path in covered}
        self._beyond: dict[str, Path] = {}
        self._weights: str | None = None
        for path in files:
            self._add(os.path.realpath(path))
        self._native = native and sys.platform == "linux"
        self.blind = native and bool(self._left) and not (self._native and all(map(_watch, self._left)))

    def __enter__(self) -> Opened:
        _install_hook()
        _drain()
        if self not in _watching:
            self._before = Counter({path: _opens[path] for path in self._left})
        _watching.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _watching.remove(self)
        _drain()
        for real, path in self._left.items():
            # any tool that lists or copies models opens a README, so its opening need not come from the model
            if self._native and _opens[real] > self._before[real] and path.name != "README.md":
                self._add(real)

    def digest(self, name: str, weights: str) -> str:
        """Return sha256 over all files opened: `weights`, the digest taken before, where that covers them. EncoderError:
        the folder changed in the meantime, so that it is unknown what was loaded."""
        if folder_digest(self.sources[0], self.sources[1:]) != weights:
            raise EncoderError(f"{name} changed while it was being loaded: start again")
        if self._beyond:
            weights = folder_digest(self.sources[0], self.sources[1:], self._beyond.values())
        self._stamps |= {path: stamp(path) for path in self._beyond.values()}
        self._weights, self._named = weights, dict(self._beyond)
        return weights

    def check(self, name: str) -> None:
        """Raise EncoderError where the model may no longer be the one of `digest`: another file was opened since, or one of
        its files has changed, which may be read again or be mapped into memory."""
        if self._weights is None:
            return
        if more := self._beyond.keys() - self._named.keys():
            raise EncoderError(f"{name} opens {min(more)} while it encodes, which its fingerprint does not cover: name that "
                               "file in its config.json, or have its code open it when it is loaded")
        changed = [path for path, before in self._stamps.items() if stamp(path) not in (before, None)]
        if not changed:
            return
        with contextlib.suppress(OSError):
            if folder_digest(self.sources[0], self.sources[1:], self._beyond.values()) == self._weights:
                self._stamps |= {path: stamp(path) for path in changed}  # only its rights or links changed
                return
        raise EncoderError(f"{changed[0]} has changed since {name} was loaded: its vectors may be another's; start again")

    def _add(self, real: str) -> None:
        if real not in self._covered and Path(real).is_file():
            self._beyond[real] = self._left.get(real, Path(real))

    def _note(self, path: str, caller: FrameType | None) -> None:
        """Note a file that Python opens to read."""
        real = os.path.realpath(path)
        if real in self._covered or real in self._beyond or caller is None:
            return
        where = caller.f_globals.get("__name__", "")
        if real in self._left or real.startswith(self._roots):
            card = real.endswith("README.md") and not _runs_code(caller, self._roots)  # libraries read it as a text
            compiled = real.endswith(".pyc") and where.startswith("importlib.")  # its .py file counts
            if not (card or compiled):
                self._add(real)
        elif _is_data(real) and _runs_code(caller, self._roots):
            self._add(real)


def _runs_code(frame: FrameType | None, roots: tuple[str, ...]) -> bool:
    """Return whether code of a model's folder is running in this frame or in one of its callers."""
    while frame is not None:
        if _CODE in frame.f_code.co_filename or frame.f_code.co_filename.startswith(roots):
            return True
        frame = frame.f_back
    return False


def _is_data(real: str) -> bool:
    """Return whether a file may be a model's: not a package's or the system's, and in the Hub's cache only a model file."""
    if real.startswith(_ELSEWHERE) or any(part in real for part in _PACKAGES):
        return False
    from huggingface_hub import constants

    home = os.path.realpath(constants.HF_HOME) + os.sep
    return not real.startswith(home) or f"{os.sep}blobs{os.sep}" in real or f"{os.sep}snapshots{os.sep}" in real


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching or event not in _EVENTS:
        return
    path, mode = arguments[0], arguments[1] if len(arguments) > 1 else None
    flags = arguments[2] if len(arguments) > 2 else 0
    writes = (isinstance(mode, str) and not mode.startswith("r")) or (isinstance(flags, int) and flags & os.O_WRONLY)
    if writes or not isinstance(path, str | bytes | os.PathLike):
        return
    with contextlib.suppress(Exception):  # if the path is wrong, opening it raises
        for opened in tuple(_watching):
            opened._note(os.fsdecode(path), sys._getframe(1))


@cache
def _install_hook() -> None:
    """Install the audit hook, once in a process, as it cannot be removed."""
    sys.addaudithook(_hook)


@cache
def _watchers() -> tuple[Any, int, int, dict[bytes, str]]:
    """Return the C library; a fanotify instance, which says whether this process opened a file (Linux 5.13, where a
    container allows it), and an inotify instance, which does not say so (-1: not available); and the files by the keys
    that events have for them."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        by_process = library.fanotify_init(_FAN_REPORT_FID | _FAN_NONBLOCK | _FAN_CLOEXEC, os.O_RDONLY)
        return library, by_process, library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), {}
    except (OSError, AttributeError):
        return None, -1, -1, {}


if hasattr(os, "register_at_fork"):  # a child that read the same queue would take events from its parent
    os.register_at_fork(after_in_child=_watchers.cache_clear)


def _watch(real: str) -> bool:
    """Watch a file; return whether the system reports from now on that it is opened."""
    library, by_process, by_all, files = _watchers()
    path, mount = os.fsencode(real), ctypes.c_int()
    handle = ctypes.create_string_buffer(struct.pack("I", 128), 8 + 128)
    if (by_process >= 0 and library.name_to_handle_at(_AT_FDCWD, path, handle, ctypes.byref(mount), 0) >= 0
            and library.fanotify_mark(by_process, _FAN_MARK_ADD, ctypes.c_uint64(_IN_OPEN), _AT_FDCWD, path) >= 0):
        files[handle.raw[:8 + struct.unpack_from("I", handle)[0]]] = real
        return True
    number = library.inotify_add_watch(by_all, path, _IN_OPEN) if by_all >= 0 else -1
    if number >= 0:
        files[struct.pack("i", number)] = real
    return bool(number >= 0)


def _drain() -> None:
    """Count the files opened since the last call. Where the system's queue overflowed, every file counts as opened."""
    _, by_process, by_all, files = _watchers() if sys.platform == "linux" else (None, -1, -1, {})
    for instance in (by_process, by_all):
        while instance >= 0 and (events := _read(instance)):
            while events:
                if instance == by_process:
                    length, _, _, head, mask, _, process = struct.unpack_from("IBBHQii", events)
                    at = head + 12  # behind the kind of what follows, its length and the file system
                    key, by_us = events[at:at + 8 + int.from_bytes(events[at:at + 4], sys.byteorder)], process == os.getpid()
                else:
                    _, mask, _, length = struct.unpack_from("iIII", events)
                    length, key, by_us = length + 16, events[:4], True
                if mask & _IN_Q_OVERFLOW or (by_us and key in files):
                    _opens.update(files.values() if mask & _IN_Q_OVERFLOW else [files[key]])
                events = events[length:]


def _read(instance: int) -> bytes:
    """Return the waiting events of an instance, b"" if there are none."""
    try:
        return os.read(instance, 1 << 16)
    except OSError:
        return b""
