"""Sizes, rates and times in the grammar of `tc`: 100mbit, 32kb (1024 bytes), 32000 (bytes), 200us."""

import re

_RATE = {"": 1, "bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_SIZE = {"": 1, "b": 1, "k": 1024, "kb": 1024, "m": 1024**2, "mb": 1024**2, "g": 1024**3, "gb": 1024**3}
_TIME_US = {"us": 1, "ms": 10**3, "s": 10**6}


def _parse(text, units, what, example):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]*)", text.strip().lower())
    if not match or match[2] not in units:
        raise ValueError(f"{text!r} is not a {what}; give one like {example}")
    value = round(float(match[1]) * units[match[2]])
    if value <= 0:
        raise ValueError(f"{text!r}: a {what} must be above 0")
    return value


def parse_rate_bps(text):
    return _parse(text, _RATE, "rate", "100mbit")


def parse_size_bytes(text):
    return _parse(text, _SIZE, "size", "32kb")


def parse_time_us(text):
    return _parse(text, _TIME_US, "time", "200us")


def format_mbps(bps):
    return f"{bps / 1e6:.1f} Mbps"
