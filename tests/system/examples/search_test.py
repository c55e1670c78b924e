"""Tests the search example as users run it: an index of a small corpus, workers, and queries over all shards.

Run as: search_test.py FOLDER_OF_THE_PROGRAMS [unittest arguments].
"""

import collections
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAMS = ""
PATIENCE = 60  # seconds that a test waits for an expected event

SEED = int(os.environ.get("SLUICE_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
SHARDS = 6
DOCUMENTS = 300
# No word is the stem of another, and stemming changes none of them.
WORDS = [f"w{i}x" for i in range(60)]


def program(name):
    return os.path.join(PROGRAMS, name)


def run(name, *flags, **options):
    return subprocess.run([program(name), *flags], capture_output=True, timeout=PATIENCE, check=False, text=True,
                          **options)


class Worker:
    """A search-worker or search-aggregator that serves on a port of its own."""

    def __init__(self, folder, *flags, name="search-worker"):
        ready = os.path.join(folder, f"ready-{time.monotonic_ns()}")
        self.process = subprocess.Popen([program(name), "--listen", "127.0.0.1:0", "--ready-file", ready, *flags],
                                        stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(ready):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"{name} did not start")
            time.sleep(0.01)
        with open(ready, encoding="ascii") as file:
            self.address = file.read().strip()

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


class SearchTest(unittest.TestCase):
    """One corpus, indexed both as one shard and as several shards."""

    @classmethod
    def setUpClass(cls):
        print(f"SLUICE_TEST_SEED={SEED}", file=sys.stderr)
        # pylint: disable=consider-using-with
        cls.folder = tempfile.TemporaryDirectory()
        cls.corpus = cls.write_corpus()
        cls.index("one", 1)
        cls.index("many", SHARDS)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def path(cls, *names):
        return os.path.join(cls.folder.name, *names)

    @classmethod
    def write_corpus(cls):
        """Writes documents of random words, as HTML and as plain text. Some words are in few documents and some in
        most."""
        rng = random.Random(SEED)
        os.mkdir(cls.path("corpus"))
        weights = [1 / (i + 1) for i in range(len(WORDS))]
        corpus = {}
        for i in range(DOCUMENTS):
            title = rng.choices(WORDS, weights, k=3)
            text = rng.choices(WORDS, weights, k=rng.randrange(1, 400))
            if i % 2 == 0:
                name, content = f"{i}.html", (
                    f"<html><head><title>{' '.join(title)}</title><style>hidden</style></head><body>"
                    f"<nav>hidden</nav><p>{'</p><p>'.join(text)}</p><script>hidden()</script></body></html>")
            else:
                name, content = f"{i}.txt", " ".join(title) + "\n" + " ".join(text)
                text = title + text  # the first line is the title, and also counts as text
            with open(cls.path("corpus", name), "w", encoding="utf-8") as file:
                file.write(content)
            corpus[os.path.realpath(cls.path("corpus", name))] = (title, text)
        return corpus

    @classmethod
    def index(cls, name, shards):
        result = run("search-index", "--out", cls.path(name), "--shards", str(shards), "--skew", "1",
                     cls.path("corpus"))
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(f"indexed {DOCUMENTS} documents"), result.stdout
        return result

    def worker(self, index, *shards):
        flags = ["--shards", ",".join(map(str, shards))] if shards else []
        worker = Worker(self.folder.name, "--index", self.path(index), *flags)
        self.addCleanup(worker.stop)
        return worker

    def aggregator(self, part, workers, *flags):
        addresses = ",".join(worker.address for worker in workers)
        aggregator = Worker(self.folder.name, "--workers", addresses, "--part", part, *flags, name="search-aggregator")
        self.addCleanup(aggregator.stop)
        return aggregator

    def search(self, workers, *flags, **options):
        return run("search", "--workers", ",".join(worker.address for worker in workers), *flags, **options)

    def found(self, workers, *flags, code=0, **options):
        result = self.search(workers, "--json", *flags, **options)
        self.assertEqual(result.returncode, code, result.stderr)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def assert_same_hits(self, hits, expected):
        """Paths and scores must be equal. Documents with equal scores may have any order."""
        self.assertEqual(len(hits), len(expected))
        for hit, (score, _) in zip(hits, expected):
            self.assertAlmostEqual(hit["score"], score, delta=1e-4 * score)
        last = expected[-1][0]

        def sure(scored):  # at the last score, any of the documents with equal scores may be in the list
            return sorted(path for score, path in scored if score > last * 1.0001)
        self.assertEqual(sure([(hit["score"], hit["path"]) for hit in hits]), sure(expected))

    def brute_force(self, words, top_k):
        """Returns BM25 by the definition in examples/search/bm25.h, and the number of matches. A word of the title
        counts five times. Xapian counts each word twice in a length: once unchanged and once stemmed."""
        length = {path: 2 * (5 * len(title) + len(text)) for path, (title, text) in self.corpus.items()}
        average = sum(length.values()) / len(length)
        scores = collections.Counter()
        for word in words:
            count = {path: 5 * title.count(word) + text.count(word) for path, (title, text) in self.corpus.items()}
            having = sum(1 for n in count.values() if n > 0)
            idf = math.log(1 + (DOCUMENTS - having + 0.5) / (having + 0.5))
            for path, n in count.items():
                if n > 0:
                    scores[path] += idf * 2.2 * n / (n + 1.2 * (0.25 + 0.75 * length[path] / average))
        ranked = sorted(((score, path) for path, score in scores.items()), key=lambda hit: (-hit[0], hit[1]))
        return ranked[:top_k], len(scores)


class RankingTest(SearchTest):
    def test_all_shards_together_rank_like_brute_force(self):
        workers = [self.worker("many", 0, 3), self.worker("many", 1, 4), self.worker("many", 2, 5)]
        rng = random.Random(SEED + 1)
        queries = [rng.sample(WORDS, rng.randrange(1, 5)) for _ in range(20)]
        results = self.found(workers, "--top-k", "25", input="\n".join(map(" ".join, queries)))
        self.assertEqual(len(results), len(queries))
        for words, result in zip(queries, results):
            expected, matches = self.brute_force(words, 25)
            self.assertEqual((result["query"], int(result["matches"])), (" ".join(words), matches))
            self.assertEqual((result["shard_count"], result["shards_answered"]), (SHARDS, SHARDS))
            self.assertEqual(result["missing"], [])
            self.assert_same_hits(result["hits"], expected)

    def test_many_shards_answer_as_one_does(self):
        one = [self.worker("one")]
        many = [self.worker("many")]
        body = " ".join(next(text for title, text in self.corpus.values() if len(text) > 20)[10:13])
        for query in (f'"{body}"', "w1x AND w20x", "w3x AND NOT w40x", "+w5x -w40x w9x", "(w7x OR w8x) AND w30x",
                      f'w2x "{body}"', "no-such-word"):
            with self.subTest(query=query):
                alone, = self.found(one, "--top-k", "40", query)
                result, = self.found(many, "--top-k", "40", query)
                self.assertEqual(result["matches"], alone["matches"])
                self.assertEqual(bool(result["hits"]), query != "no-such-word")
                if result["hits"]:
                    self.assert_same_hits(result["hits"], [(hit["score"], hit["path"]) for hit in alone["hits"]])

    def test_every_policy_finds_the_same(self):
        workers = [self.worker("many")]
        expected, _ = self.brute_force(["w4x"], 10)
        for policy in ("unscheduled", "batches", "rolling", "grants"):
            with self.subTest(policy=policy):
                result, = self.found(workers, "--policy", policy, "--budget", "4kb", "w4x")
                self.assert_same_hits(result["hits"], expected)

    def test_title_path_and_snippet_are_those_of_the_document(self):
        result, = self.found([self.worker("many")], "--snippet", "100", "w10x")
        for hit in result["hits"]:
            title, text = self.corpus[hit["path"]]
            self.assertEqual(hit["title"], " ".join(title))
            if "w10x" in text:
                self.assertIn("<b>w10x</b>", hit["snippet_html"])
            self.assertLess(len(hit["snippet_html"].replace("<b>", "").replace("</b>", "")), 150)
        bare, = self.found([self.worker("many")], "--snippet", "0", "w10x")
        self.assertEqual({hit["snippet_html"] for hit in bare["hits"]}, {""})

    def test_what_a_page_does_not_show_is_not_found(self):
        result, = self.found([self.worker("many")], "hidden")
        self.assertEqual(result["hits"], [])

    def test_text_for_people(self):
        result = self.search([self.worker("many")], "--top-k", "2", "--repeat", "3", "w10x", "w11x")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?s)^1\. .*\n2\. .*\*w1[01]x\*.*"
                         r"w10x w11x: 2 of \d+ matches in 300 documents; 6 of 6 shards answered, "
                         r"with .* \(p50 of 3; p99 ")


class LostWorkersTest(SearchTest):
    def test_a_dead_worker_is_told_by_coverage(self):
        alive, dead = self.worker("many", 0, 1, 2, 3), self.worker("many", 4, 5)
        dead.stop()
        strict = self.search([alive, dead], "w0x")
        self.assertEqual(strict.returncode, 1)
        self.assertIn("no worker serves shard 4, 5; 2 missing of 6 shards are more than --fail_limit 0", strict.stderr)
        result, = self.found([alive, dead], "--fail-limit", "2", "w0x", code=3)
        self.assertEqual((result["shard_count"], result["shards_answered"], len(result["missing"])), (6, 4, 2))
        self.assertEqual(len(result["hits"]), 10)

    def test_a_worker_that_dies_between_two_queries(self):
        alive, dying = self.worker("many", 0, 1, 2, 3), self.worker("many", 4, 5)
        with subprocess.Popen([program("search"), "--workers", f"{alive.address},{dying.address}", "--json",
                               "--fail-limit", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as search:
            print("w0x", file=search.stdin, flush=True)
            whole = json.loads(search.stdout.readline())
            dying.stop()
            print("w0x", file=search.stdin, flush=True)
            partial = json.loads(search.stdout.readline())
            search.communicate(timeout=PATIENCE)
        self.assertEqual(search.returncode, 3)
        self.assertEqual((whole["shards_answered"], whole["missing"]), (6, []))
        self.assertEqual((partial["shards_answered"], len(partial["missing"])), (4, 2))
        self.assertIn(dying.address, partial["missing"][0])
        self.assertLess(int(partial["matches"]), int(whole["matches"]))

    def test_replicas_stand_in(self):
        workers = [self.worker("many", *shards) for shards in ((0, 1, 2, 3), (2, 3, 4, 5), (4, 5, 0, 1))]
        expected, matches = self.brute_force(["w3x"], 10)
        for lost in (None, workers[1]):
            if lost:
                lost.stop()
            result, = self.found(workers, "w3x")
            self.assertEqual((int(result["matches"]), result["shards_answered"]), (matches, SHARDS))
            self.assert_same_hits(result["hits"], expected)

    def test_an_index_that_has_lost_its_replicas_is_searched_without_hedges(self):
        copies = [self.worker("many"), self.worker("many")]
        copies[1].stop()
        result, = self.found(copies, "--hedge-after", "1s", "w3x")
        self.assertEqual(result["shards_answered"], SHARDS)

    def test_nobody_answers(self):
        worker = self.worker("many")
        worker.stop()
        result = self.search([worker], "--fail-limit", "100", "w0x")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("no worker answered", result.stderr)


class TreeTest(SearchTest):
    """The client calls aggregators, which call the workers with the shards."""

    def setUp(self):
        # Part 0 of 2 has the shards 0, 2 and 4.
        self.workers = [self.worker("many", *shards) for shards in ((0, 2), (4,), (1, 3), (5,))]
        self.parts = [self.aggregator("0/2", self.workers[:2]), self.aggregator("1/2", self.workers[2:])]

    def test_two_levels_rank_like_brute_force(self):
        rng = random.Random(SEED + 2)
        queries = [rng.sample(WORDS, rng.randrange(1, 5)) for _ in range(10)]
        results = self.found(self.parts, "--top-k", "25", input="\n".join(map(" ".join, queries)))
        self.assertEqual(len(results), len(queries))
        for words, result in zip(queries, results):
            expected, matches = self.brute_force(words, 25)
            self.assertEqual(int(result["matches"]), matches)
            self.assertEqual((result["shard_count"], result["shards_answered"], result["missing"]), (SHARDS, SHARDS, []))
            self.assert_same_hits(result["hits"], expected)

    def test_three_levels_and_one_worker_for_all(self):
        workers = [self.worker("many")]
        below = [self.aggregator(f"{part}/3", workers) for part in range(3)]
        top = [self.aggregator("0/1", below)]
        expected, matches = self.brute_force(["w3x"], 10)
        result, = self.found(top, "w3x")
        self.assertEqual((int(result["matches"]), result["shards_answered"]), (matches, SHARDS))
        self.assert_same_hits(result["hits"], expected)

    def test_coverage_counts_the_shards_of_the_lowest_level(self):
        whole, = self.found(self.parts, "w0x")
        self.workers[0].stop()
        strict = self.search(self.parts, "w0x")
        self.assertEqual(strict.returncode, 1)
        self.assertIn("2 missing of 6 shards are more than --fail_limit 0", strict.stderr)
        self.assertIn(self.workers[0].address, strict.stderr)
        partial, = self.found(self.parts, "--fail-limit", "2", "w0x", code=3)
        self.assertEqual((partial["shard_count"], partial["shards_answered"], len(partial["missing"])), (6, 4, 2))
        self.assertLess(int(partial["matches"]), int(whole["matches"]))
        self.assertIn(self.parts[0].address, partial["missing"][0])

    def test_a_lost_aggregator_costs_its_part(self):
        with subprocess.Popen([program("search"), "--workers", ",".join(part.address for part in self.parts), "--json",
                               "--fail-limit", "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as search:
            print("w0x", file=search.stdin, flush=True)
            self.assertEqual(json.loads(search.stdout.readline())["shards_answered"], 6)
            self.parts[1].stop()
            print("w0x", file=search.stdin, flush=True)
            partial = json.loads(search.stdout.readline())
            search.communicate(timeout=PATIENCE)
        self.assertEqual((search.returncode, partial["shard_count"], partial["shards_answered"]), (3, 6, 3))

    def test_bad_queries_and_flags_are_told_through_the_level(self):
        result = self.search(self.parts, "w0x AND")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("Syntax: <expression> AND <expression>", result.stderr)
        for part in ("2/2", "1", "0/0", "x/2"):
            result = run("search-aggregator", "--listen", "127.0.0.1:0", "--workers", self.workers[0].address, "--part", part)
            self.assertEqual(result.returncode, 2)
            self.assertIn(f'part: "{part}" is not like 1/4', result.stderr)
        mixed = self.search([self.parts[0], self.worker("many")], "w0x")
        self.assertEqual(mixed.returncode, 1)
        self.assertIn("serves an index of", mixed.stderr)


class BadInputTest(SearchTest):
    def assert_fails(self, result, code, message):
        self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
        self.assertIn(message, result.stderr)

    def test_index(self):
        out = self.path("new")
        for flags, code, message in (
                (["--out", out, self.path("nowhere")], 1, "there is no folder"),
                (["--out", out, self.path("many")], 1, "no .html, .htm or .txt file below"),
                (["--out", out, "--shards", "0", self.path("corpus")], 1, "shards: 0 is not from 1 to 1024"),
                (["--out", out, "--skew", "-1", self.path("corpus")], 1, "skew: -1 is not from 0 to 4"),
                (["--out", self.path("many"), self.path("corpus")], 1, "--force replaces it"),
                (["--out", self.path("corpus"), "--force", self.path("corpus")], 1, "is there already and no index"),
                (["--out", out], 2, "CORPUS is required")):
            with self.subTest(message=message):
                self.assert_fails(run("search-index", *flags), code, message)
                self.assertFalse(os.path.exists(out))

    def test_files_without_text_are_skipped_and_named(self):
        os.makedirs(self.path("odd", "_sources"))
        for name, content in (("empty.html", b""), ("latin.txt", b"Caf\xe9 noir"), ("page.html", b"<p>w1x"),
                              ("page.txt", b"its source"), ("_sources/a.txt", b"left out")):
            with open(self.path("odd", name), "wb") as file:
                file.write(content)
        result = run("search-index", "--out", self.path("odd-index"), self.path("odd"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"^indexed 2 documents.* 1 files skipped")
        self.assertIn("empty.html", result.stderr)
        found, = self.found([self.worker("odd-index")], "caf\u00e9")
        self.assertEqual([hit["title"] for hit in found["hits"]], ["Caf\u00e9 noir"])

    def test_force_replaces_an_index(self):
        flags = ["search-index", "--out", self.path("again"), self.path("corpus")]
        self.assertEqual([run(*flags).returncode, run(*flags).returncode, run(*flags, "--force").returncode], [0, 1, 0])

    def test_worker(self):
        self.assert_fails(run("search-worker", "--listen", "127.0.0.1:0", "--index", self.path("nowhere")), 1,
                          "there is no")
        self.assert_fails(run("search-worker", "--listen", "127.0.0.1:0", "--index", self.path("many"),
                              "--shards", "6"), 1, "shard-0006")
        self.assert_fails(run("search-worker", "--index", self.path("many")), 2, "--listen is required")
        taken = self.worker("many")
        self.assert_fails(run("search-worker", "--listen", taken.address, "--index", self.path("many")), 1,
                          "cannot serve on " + taken.address)

    def test_query(self):
        workers = [self.worker("many")]
        for flags, code, message in (
                (["--top-k", "0", "w0x"], 2, "--top-k: Value 0 not in range 1 to 1000"),
                (["--snippet", "5kb", "w0x"], 2, "--snippet: Value 5120 not in range 0 to 4096"),
                (["--policy", "magic", "w0x"], 2, "--policy: "),
                (["--fail-limit", "-1", "w0x"], 2, "--fail-limit: Value -1 not in range 0 to "),
                (["--timeout", "soon", "w0x"], 2, "--timeout: \"soon\" is not a time above 0, such as 300ms"),
                (["w0x AND"], 1, "Syntax: <expression> AND <expression>"),
                (["--fail-limit", "6", "w0x AND"], 1, "Syntax: <expression> AND <expression>"),
                (["w" * 5000], 1, "query: 5000 bytes are more than 4096")):
            with self.subTest(message=message):
                self.assert_fails(self.search(workers, *flags), code, message)

    def test_workers_of_two_indexes(self):
        self.assert_fails(self.search([self.worker("one"), self.worker("many")], "w0x"), 1, "serves an index of")


if __name__ == "__main__":
    PROGRAMS = sys.argv.pop(1)
    unittest.main()
