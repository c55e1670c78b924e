"""Finds the series that a PromQL expression reads. Prometheus 2.42 checks an expression but does not return its
parts."""

import re

_TOKEN = re.compile(
    r"""
    (?P<skipped>\s+|\#[^\n]*|\[[^\]]*\])              # blanks, comments, ranges: no expression stands in [5m:15s]
  | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
  | (?P<number>0[xX][0-9a-fA-F]+|\.?[0-9][0-9a-zA-Z.]*(?:(?<=[eE])[+-][0-9]+)?)      # also durations, as in offset 5m
  | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
  | (?P<matchers>\{(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`|[^}"'`])*\})
  | (?P<other>.)
    """,
    re.VERBOSE,
)
_AGGREGATIONS = frozenset(
    "sum min max avg group stddev stdvar count count_values bottomk topk quantile".split()
)  # functions if followed by "("; otherwise followed by a grouping: sum by (instance) (...)
_GROUPINGS = frozenset("by without on ignoring group_left group_right".split())  # may be followed by labels
_OPERATORS = frozenset("and or unless atan2 bool offset inf nan".split())


def selectors(expression):
    """Returns the vector selectors of a valid expression, as written: name, matchers, or both."""
    tokens = [match for match in _TOKEN.finditer(expression) if match.lastgroup != "skipped"]
    found = []
    position = 0
    while position < len(tokens):
        kind, text = tokens[position].lastgroup, tokens[position].group()
        following = tokens[position + 1] if position + 1 < len(tokens) else None
        position += 1
        if kind == "matchers":
            found.append(text)
        elif kind == "name":
            word = text.lower()
            if word in _GROUPINGS:
                position = _after_labels(tokens, position)
            elif word in _OPERATORS or _is_call(word, following):
                continue
            elif following is not None and following.lastgroup == "matchers":
                found.append(text + following.group())
                position += 1
            else:
                found.append(text)
    return found


def _is_call(word, following):
    if following is None:
        return False
    return following.group() == "(" or (word in _AGGREGATIONS and following.group().lower() in ("by", "without"))


def _after_labels(tokens, position):
    """Returns the position after "(instance, job)", if labels follow."""
    if position < len(tokens) and tokens[position].group() == "(":
        while tokens[position].group() != ")":
            position += 1
        position += 1
    return position
