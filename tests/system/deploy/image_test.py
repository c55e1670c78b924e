#!/usr/bin/env python3
"""Tests the image as far as possible without an image builder: image_test.py FOLDER_OF_PROGRAMS"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import manifests  # noqa: E402

_PROGRAMS = pathlib.Path()
_COLLECT = manifests.REPOSITORY / "deploy/image/collect.sh"
_DOCKERFILE = (manifests.REPOSITORY / "deploy/image/Dockerfile").read_text()


def collect(programs, tree):
    return subprocess.run([_COLLECT, programs, tree], capture_output=True, check=False, text=True)


class TreeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-image-")
        cls.addClassCleanup(folder.cleanup)
        cls.tree = pathlib.Path(folder.name) / "tree"
        result = collect(_PROGRAMS, cls.tree)
        assert result.returncode == 0, result.stderr
        (loader,) = (cls.tree / "usr/lib64").iterdir()
        libraries = {str(path.parent) for path in (cls.tree / "usr/lib").rglob("*.so*")}
        cls.loader = [loader, "--inhibit-cache", "--library-path", ":".join(libraries)]

    def programs(self):
        return sorted((self.tree / "usr/bin").iterdir())

    def test_programs_run_with_the_libraries_of_the_tree_alone(self):
        self.assertGreaterEqual(len(self.programs()), 7)
        for program in self.programs():
            listed = subprocess.run([*self.loader, "--list", program], capture_output=True, check=True, text=True, env={})
            for path in re.findall(r"=> (\S+)", listed.stdout):
                self.assertTrue(path.startswith(str(self.tree)), f"{program.name} takes {path}")
            version = subprocess.run([*self.loader, program, "--version"], capture_output=True, check=False, env={})
            self.assertEqual(version.returncode, 0, version.stderr)

    def test_programs_that_the_manifests_start_are_there(self):
        for overlay in manifests.WITH_CONFIGS:
            for workload in manifests.workloads(manifests.installed(overlay)):
                for container in manifests.init_containers(workload) + manifests.containers(workload):
                    if not re.search(r"(^|/)sluice:", container["image"]):
                        continue
                    program = container["command"][0]
                    if program.startswith("/usr/bin/search") and not (_PROGRAMS / "search").exists():
                        continue  # the example is built only if its libraries are installed
                    self.assertTrue((self.tree / program[1:]).exists(), program)

    def test_it_is_small_and_has_no_shell(self):
        size = sum(path.stat().st_size for path in self.tree.rglob("*") if path.is_file() and not path.is_symlink())
        # The released image has 60 MB; programs without optimization are larger.
        self.assertLess(size, 120 << 20)
        for shell in ("sh", "bash", "dash", "busybox"):
            self.assertFalse((self.tree / "usr/bin" / shell).exists())

    def test_its_packages_and_their_licences_are_on_record(self):
        packages = {path.name for path in (self.tree / "var/lib/dpkg/status.d").iterdir()}
        self.assertLessEqual({"libc6", "libprotobuf32", "coreutils"}, packages)
        for package in packages:
            self.assertTrue((self.tree / f"usr/share/doc/{package}/copyright").exists(), package)

    def test_it_has_every_page_of_the_docs(self):
        docs, copies = manifests.REPOSITORY / "docs", self.tree / "usr/share/doc/sluice"
        pages = {path.relative_to(docs).with_suffix("") for path in docs.rglob("*.md")}
        self.assertEqual({path.relative_to(copies).with_suffix("") for path in copies.rglob("*.txt")}, pages)

    def test_a_tree_is_not_made_over_another(self):
        result = collect(_PROGRAMS, self.tree)
        self.assertEqual(result.returncode, 1)
        self.assertIn("is there already", result.stderr)

    def test_a_folder_without_programs_is_refused(self):
        with tempfile.TemporaryDirectory() as empty:
            result = collect(empty, os.path.join(empty, "tree"))
            self.assertEqual(result.returncode, 1)
            self.assertIn("there is no sluice-aggregator", result.stderr)


class DockerfileTest(unittest.TestCase):
    def stages(self):
        return re.split(r"^(?=FROM )", _DOCKERFILE, flags=re.M)[1:]

    def test_the_last_stage_is_the_tree_and_nothing_else(self):
        build, image = self.stages()
        (tree,) = re.findall(r"^RUN deploy/image/collect\.sh \S+ (\S+)$", build, re.M)
        self.assertTrue(image.startswith("FROM scratch\n"))
        self.assertEqual(re.findall(r"^COPY (.*)$", image, re.M), [f"--from=build {tree} /"])
        self.assertEqual(re.findall(r"^RUN", image, re.M), [])

    def test_its_user_is_not_root_and_is_that_of_the_manifests(self):
        (user,) = re.findall(r"^USER (\d+):\d+$", self.stages()[-1], re.M)
        for workload in manifests.workloads(manifests.installed("production")):
            self.assertEqual(manifests.pod(workload)["spec"]["securityContext"]["runAsUser"], int(user))

    def test_what_it_copies_exists(self):
        for sources in re.findall(r"^COPY (?!--)(.*) \S+$", self.stages()[0], re.M):
            for source in sources.split():
                self.assertTrue((manifests.REPOSITORY / source).exists(), source)


if __name__ == "__main__":
    _PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
