"""Text with a unit becomes seconds and bytes, and figures become text that people read."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.units import (
    format_bytes,
    format_count,
    format_seconds,
    parse_bandwidth,
    parse_bytes,
    parse_flops,
    parse_seconds,
    parse_whole,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0.0),
        ("4096", 4096.0),
        ("4096 B", 4096.0),
        ("1e9", 1e9),
        ("12 GB", 12e9),
        ("12GB", 12e9),
        ("12 G", 12e9),
        ("16 GiB", 16 * 2.0**30),
        ("1.5 TiB", 1.5 * 2.0**40),
        ("512 MiB", 2.0**29),
        ("3 kB", 3e3),
        ("3 KB", 3e3),
        (" 7 KiB ", 7 * 1024.0),
        ("24 gb", 24e9),
        ("24 Gb", 24e9),
        ("24 gib", 24 * 2.0**30),
        ("24 m", 24e6),
    ],
)
def test_memory_is_read_in_decimal_and_binary_units(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("32 GB/s", 32e9),
        ("32GB/s", 32e9),
        ("16 GiB/s", 16 * 2.0**30),
        ("100 Gbit/s", 12.5e9),
        ("100 Gb/s", 12.5e9),
        ("100 gbit/s", 12.5e9),
        ("10 Gbits/s", 1.25e9),
        ("10 Gbps", 1.25e9),
        ("10 gbps", 1.25e9),
        ("8 bps", 1.0),
        ("1 Kibit/s", 128.0),
        ("5 B/s", 5.0),
        ("12e9", 12e9),
    ],
)
def test_bandwidth_is_read_in_bytes_and_bits(text, expected):
    assert parse_bandwidth(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 s", 2.0),
        ("1.5 ms", 1.5e-3),
        ("5 us", 5e-6),
        ("5 µs", 5e-6),
        ("20ns", 20e-9),
        ("5e-6", 5e-6),
        ("0", 0.0),
    ],
)
def test_a_time_is_read_with_or_without_a_unit(text, expected):
    assert parse_seconds(text) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    "text",
    ["", "GB", "16 Gigs", "16 gbit", "-1 GB", "1,5 GB", "1 GB/s", "nan", "inf", "0x10", "٣ GB"],
)
def test_what_is_no_memory_is_refused_with_how_to_write_it(text):
    with pytest.raises(ValueError, match="no amount of memory: write bytes") as caught:
        parse_bytes(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1_0", "1.0", "²", "٣", "9" * 5000])
def test_what_is_no_whole_number_is_none(text):
    assert parse_whole(text) is None
    assert (parse_whole("0"), parse_whole("9" * 4000)) == (0, 10**4000 - 1)


@pytest.mark.parametrize(
    "text",
    ["", "12 GB", "12 GBps", "12 gb/s", "12 MB/S", "-1 GB/s", "fast", "12 G/s", "inf"],
)
def test_what_is_no_bandwidth_is_refused_with_how_to_write_it(text):
    with pytest.raises(ValueError, match="no bandwidth: write bytes per second") as caught:
        parse_bandwidth(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("330 TFLOPS", 330e12),
        ("330 TFLOP/s", 330e12),
        ("330tflops", 330e12),
        ("900 GFLOPS", 900e9),
        ("1.5 PFLOPS", 1.5e15),
        ("284 TOPS", 284e12),
        ("7e13", 7e13),
    ],
)
def test_a_peak_is_read_in_operations_per_second(text, expected):
    assert parse_flops(text) == expected


@pytest.mark.parametrize("text", ["", "330 T", "330 TFLOP", "330 TiFLOPS", "-1 TFLOPS", "fast"])
def test_what_is_no_peak_is_refused_with_how_to_write_it(text):
    with pytest.raises(ValueError, match="no number of operations per second") as caught:
        parse_flops(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["", "5 min", "5 m", "-5 us", "soon", "1:30", "nan s"])
def test_what_is_no_time_is_refused_with_how_to_write_it(text):
    with pytest.raises(ValueError, match="no time: write seconds") as caught:
        parse_seconds(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1.5 * 2**20, "1.5 MiB"),
        (31.25 * 2**30, "31.2 GiB"),
        (5 * 2**50, "5120.0 TiB"),
        (999_999 * 2.0**40, "999999.0 TiB"),
        (1e300, "9.1e+287 TiB"),
        (-2048, "-2.0 KiB"),
        (math.inf, "unlimited"),
    ],
)
def test_bytes_are_written_in_binary_units(amount, expected):
    assert format_bytes(amount) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (1.677, "1.677 s"),
        (0.00123, "1.230 ms"),
        (5e-6, "5.000 µs"),
        (20e-9, "20.0 ns"),
        (3600, "3600.000 s"),
        (1e300, "1.000e+300 s"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_seconds_are_written_in_the_unit_that_fits(seconds, expected):
    assert format_seconds(seconds) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0"),
        (999, "999"),
        (1500, "1.5 k"),
        (12.9e9, "12.9 G"),
        (3e12, "3.0 T"),
        (2e15, "2.0 P"),
        (1e300, "1.0e+285 P"),
    ],
)
def test_counts_are_written_in_decimal_units(number, expected):
    assert format_count(number) == expected


@given(st.floats(0, 1e15))
def test_what_is_written_reads_back_within_its_precision(amount):
    assert parse_bytes(format_bytes(amount)) == pytest.approx(amount, rel=0.05, abs=0.5)


@given(st.floats(1e-8, 1e6))
def test_written_seconds_read_back_within_their_precision(seconds):
    assert parse_seconds(format_seconds(seconds)) == pytest.approx(seconds, rel=6e-3)
