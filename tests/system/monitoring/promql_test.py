#!/usr/bin/env python3
"""Tests which series promql.selectors finds, and which words it must not take for a series."""

import unittest

from promql import selectors


class SelectorsTest(unittest.TestCase):
    def finds(self, expression, *expected):
        self.assertEqual(selectors(expression), list(expected))

    def test_names_with_and_without_matchers(self):
        self.finds("up", "up")
        self.finds('up{job=~"a|b"} == 0', 'up{job=~"a|b"}')
        self.finds('up {job="a"}', 'up{job="a"}')
        self.finds("job:up:rate5m / up", "job:up:rate5m", "up")
        self.finds('{__name__="up"}', '{__name__="up"}')

    def test_matchers_that_hold_anything(self):
        self.finds('up{a="}",b=\'{\\\'\', c=`"`} + on() x', "up{a=\"}\",b='{\\'', c=`\"`}", "x")
        self.finds('a{b="\\"}"} > c', 'a{b="\\"}"}', "c")

    def test_functions_and_their_arguments(self):
        self.finds("histogram_quantile(0.99, rate(x_bucket[5m]))", "x_bucket")
        self.finds("max_over_time(rate(x[5m])[1h:15s])", "x")
        self.finds('label_replace(x, "up", "$1", "b", "(.*)")', "x")
        self.finds("vector(0) + time()")

    def test_aggregations_with_labels_before_and_behind(self):
        self.finds("sum by (le, instance) (x)", "x")
        self.finds("sum without(outcome) (x{outcome!=\"ok\"})", 'x{outcome!="ok"}')
        self.finds("sum(x) by (le)", "x")
        self.finds("TOPK BY (a) (10, x)", "x")

    def test_vector_matching(self):
        self.finds("a / ignoring (kind) group_left () b", "a", "b")
        self.finds("a / on(instance) group_right b", "a", "b")
        self.finds("a and b or c unless on (x) d", "a", "b", "c", "d")
        self.finds("a > bool b", "a", "b")

    def test_numbers_and_durations_are_no_names(self):
        self.finds("1e4 * a", "a")
        self.finds("2.5E-3 + 0x1F * a - .5 > Inf or nan", "a")
        self.finds("a offset 5m - a @ 1609746000", "a", "a")
        self.finds("a @ start() offset -1h30m", "a")

    def test_comments(self):
        self.finds("a # and b\n + c", "a", "c")

    def test_a_metric_may_be_named_like_a_word(self):
        self.finds("sum + count", "sum", "count")
        self.finds("android or order_total", "android", "order_total")


if __name__ == "__main__":
    unittest.main(verbosity=2)
