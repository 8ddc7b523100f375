"""Folders that are there whole or not at all."""

from __future__ import annotations

import errno
import os

import pytest

from placewright.errors import FormatError
from placewright.formats.folders import new_folder


def test_what_the_system_has_against_a_file_inside_names_the_folder(tmp_path):
    folder = tmp_path / "figures"
    expected = f"{folder}: cannot be written ({os.strerror(errno.ENOSPC)})"
    with pytest.raises(FormatError) as raised, new_folder(folder) as inside:
        (inside / "first").write_text("")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert str(raised.value) == expected
    assert list(tmp_path.iterdir()) == []
