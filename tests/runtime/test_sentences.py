"""What a rank failed of becomes one sentence."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from placewright.errors import ExecutionError, FormatError
from placewright.runtime.ranks.channels import ChannelError, ChannelTimeoutError, OpError
from placewright.runtime.ranks.failures import compared_with, event_of, failure_of, sentence_of
from placewright.system.memory import ShortageError

MIB = 1 << 20


def told(error: Exception, doing: str = "loading its weights") -> str:
    return sentence_of(1, event_of(error), doing)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "missing"),
    [
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
                      f"allocate memory: you tried to allocate {3 * MIB} bytes."),
         "3.0 MiB more are not there"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate "
                      f"{5 * MIB} bytes."), "5.0 MiB more are not there"),
        (ShortageError(7 * MIB), "7.0 MiB more are not there"),
        (MemoryError(), "no more is there"),
        (OSError(12, "Cannot allocate memory"), "no more is there"),
        (RuntimeError("std::bad_alloc"), "no more is there"),
    ],
)  # fmt: skip
def test_memory_that_is_short_is_told_with_the_op_or_what_the_rank_did(
    cause: Exception, missing: str
) -> None:
    end = f": {missing}; put less on its device"
    assert told(cause) == f"rank 1 ran out of memory while loading its weights{end}"
    in_op = caused(OpError("add"), cause)
    assert told(in_op) == f"rank 1 ran out of memory in op 'add'{end}"
    moving = caused(OpError("add", "receiving"), cause)
    assert told(moving) == f"rank 1 ran out of memory in receiving the output of op 'add'{end}"
    wrapped = caused(ExecutionError("cannot be mapped"), cause)
    assert told(wrapped) == f"rank 1 ran out of memory while loading its weights{end}"


def test_an_error_of_an_op_keeps_its_type_and_first_line() -> None:
    error = caused(OpError("add"), ValueError("\n no luck\nat all"))
    assert told(error) == "rank 1 failed in op 'add': ValueError: no luck"


def test_a_sentence_of_this_package_stays_as_it_is() -> None:
    error = FormatError("a.safetensors: ends before its tensors; download it again")
    assert told(error) == f"rank 1 failed: {error}"
    assert failure_of(1, error) is error


def test_a_lost_rank_is_told_without_places_in_another_library() -> None:
    error = ChannelError("[../third_party/gloo/tcp/pair.cc:547] Connection closed by peer")
    expected = "rank 1 lost another rank while running its ops (Connection closed by peer)"
    assert told(error, "running its ops") == expected
    assert str(failure_of(1, error)) == expected


def test_a_rank_that_waited_too_long_says_for_which_op() -> None:
    error = ChannelTimeoutError("has waited for the output of op 'add' from rank 0 for 5 s")
    assert told(error) == (
        "rank 1 has waited for the output of op 'add' from rank 0 for 5 s; "
        "give a longer timeout if the model is slow"
    )


def test_ctrl_c_is_no_failure_of_a_rank() -> None:
    stop = KeyboardInterrupt()
    assert failure_of(0, stop) is stop


def test_memory_that_one_process_lacks_is_told() -> None:
    with pytest.raises(ExecutionError) as caught, compared_with():
        raise ShortageError(7 * MIB)
    assert str(caught.value) == (
        "the single process that the run is compared with ran out of memory: 7.0 MiB more are not "
        "there; free some, or make the model smaller"
    )
