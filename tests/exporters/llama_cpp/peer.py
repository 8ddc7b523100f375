"""Run by the interpreter that has `llama_cpp`: whether it can, an RPC server, or a model.

    python peer.py check
    python peer.py serve PORT                        on loopback, until its standard input ends
    python peer.py run MODEL TOKENS [ARGUMENT …]     prints {"log": …, "logits": …}

ARGUMENTs are those of ``llama-server``, which the package does not have.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from pathlib import Path

import llama_cpp

FLAGS = {"--no-op-offload"}


def library(name: str) -> ctypes.CDLL:
    folder = Path(llama_cpp.__file__).parent / "lib"
    return ctypes.CDLL(str(next(folder.glob(f"lib{name}.so*"))), ctypes.RTLD_GLOBAL)


def function(name: str, of: str, result: object, *arguments: object):
    found = getattr(library(of), name)
    found.restype, found.argtypes = result, arguments
    return found


def serve(port: str) -> None:
    """A server of the CPU, which ends with the process that started it."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    device = function("ggml_backend_dev_by_type", "ggml", ctypes.c_void_p, ctypes.c_int)(0)
    start = function(
        "ggml_backend_rpc_start_server",
        "ggml-rpc",
        None,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_void_p),
    )
    start(f"127.0.0.1:{port}".encode(), None, 1, 1, (ctypes.c_void_p * 1)(device))


class Override(ctypes.Structure):
    _fields_ = (("pattern", ctypes.c_char_p), ("buffers", ctypes.c_void_p))


class Request:
    """A model and its context, by arguments of ``llama-server``."""

    def __init__(self, arguments: list[str]) -> None:
        self.given: dict[str, str] = {}
        self.kept: list[object] = []  # what llama.cpp only points to
        words = iter(arguments)
        for word in words:
            self.given[word] = "" if word in FLAGS else next(words)

    def model(self, path: str) -> object:
        given, chosen = self.given, llama_cpp.llama_model_default_params()
        self._connect(given.get("--rpc", ""))
        chosen.n_gpu_layers = int(given.get("-ngl", 0))
        chosen.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
        if "-dev" in given:
            chosen.devices = self._devices(given["-dev"].split(","))
        if "-ts" in given:
            shares = [float(each) for each in given["-ts"].split(",")]
            chosen.tensor_split = (ctypes.c_float * 16)(*shares)
        if "-ot" in given:
            chosen.tensor_buft_overrides = self._overrides(given["-ot"])
        return llama_cpp.llama_model_load_from_file(path.encode(), chosen)

    def context(self, model: object) -> object:
        chosen = llama_cpp.llama_context_default_params()
        chosen.n_ctx = int(self.given.get("-c", 512))
        chosen.n_seq_max = int(self.given.get("-np", 1))
        chosen.n_outputs_max = chosen.n_seq_max  # as the server asks for
        chosen.n_batch, chosen.n_ubatch, chosen.n_threads = 2048, 512, 1
        chosen.op_offload = "--no-op-offload" not in self.given
        return llama_cpp.llama_init_from_model(model, chosen)

    def _connect(self, endpoints: str) -> None:
        add = function("ggml_backend_rpc_add_server", "ggml-rpc", ctypes.c_void_p, ctypes.c_char_p)
        register = function("ggml_backend_register", "ggml", None, ctypes.c_void_p)
        for endpoint in filter(None, endpoints.split(",")):
            register(add(endpoint.encode()))

    def _devices(self, names: list[str]) -> int:
        named = function("ggml_backend_dev_by_name", "ggml", ctypes.c_void_p, ctypes.c_char_p)
        found = (ctypes.c_void_p * (len(names) + 1))(*(named(name.encode()) for name in names))
        assert all(found[: len(names)]), names
        self.kept.append(found)
        return ctypes.addressof(found)

    def _overrides(self, rule: str) -> int:
        pattern, _, where = rule.rpartition("=")
        assert where == "CPU"
        buffers = function("ggml_backend_cpu_buffer_type", "ggml-base", ctypes.c_void_p)()
        found = (Override * 2)(Override(pattern.encode(), buffers))
        self.kept.append(found)
        return ctypes.addressof(found)


def run(model: str, tokens: str, *arguments: str) -> None:
    log: list[str] = []
    keep = llama_cpp.llama_log_callback(lambda level, text, data: log.append(text.decode()))
    llama_cpp.llama_log_set(keep, None)
    llama_cpp.llama_backend_init()
    request = Request(list(arguments))
    loaded = request.model(model)
    assert loaded, "".join(log)
    context = request.context(loaded)
    assert context, "".join(log)
    numbers = [int(each) for each in tokens.split(",")]
    words = (llama_cpp.llama_token * len(numbers))(*numbers)  # a batch only points to them
    batch = llama_cpp.llama_batch_get_one(words, len(numbers))
    assert llama_cpp.llama_decode(context, batch) == 0, "".join(log)
    size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(loaded))
    logits = list(llama_cpp.llama_get_logits_ith(context, -1)[:size])
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(loaded)
    print(json.dumps({"log": "".join(log), "logits": logits}))


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "check":
        sys.exit(0 if llama_cpp.llama_supports_rpc() else "llama.cpp is built without GGML_RPC")
    (serve if command == "serve" else run)(*rest)
