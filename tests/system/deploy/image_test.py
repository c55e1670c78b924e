#!/usr/bin/env python3
"""Tests the image as far as possible without an image builder: image_test.py FOLDER_OF_PROGRAMS"""

import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.dont_write_bytecode = True

import manifests  # noqa: E402

_PROGRAMS = pathlib.Path()
_COLLECT = manifests.REPOSITORY / "deploy/image/collect.sh"
_MAKE_IMAGE = manifests.REPOSITORY / "deploy/image/make_image"
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


class Image:
    """One image of an OCI layout."""

    def __init__(self, layout, name):
        self.layout = layout
        index = json.loads((layout / "index.json").read_text())
        (entry,) = [each for each in index["manifests"] if each["annotations"]["org.opencontainers.image.ref.name"] == name]
        self.digest = entry["digest"]
        manifest = json.loads(self.blob(entry))
        self.config = json.loads(self.blob(manifest["config"]))
        (layer,) = manifest["layers"]
        self.tar = gzip.decompress(self.blob(layer))
        self.files = {member.name: member for member in tarfile.open(fileobj=io.BytesIO(self.tar))}

    def blob(self, descriptor):
        content = (self.layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
        assert (len(content), f"sha256:{hashlib.sha256(content).hexdigest()}") == (descriptor["size"], descriptor["digest"])
        return content

    def read(self, name):
        return tarfile.open(fileobj=io.BytesIO(self.tar)).extractfile(name).read()


class MadeImageTest(unittest.TestCase):
    """The images that deploy/image/make_image makes without an image builder."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sluice-images-")
        cls.addClassCleanup(folder.cleanup)
        cls.outs = [pathlib.Path(folder.name) / name for name in ("first", "second")]
        for out, umask in zip(cls.outs, (0o022, 0o077)):
            subprocess.run([_MAKE_IMAGE, _PROGRAMS, out], check=True, stdout=subprocess.DEVNULL, umask=umask)
        cls.images = {name: Image(cls.outs[0], name) for name in ("sluice", *cls.daemons())}

    @staticmethod
    def daemons():
        return [f"sluice-{name}" for name in ("aggregator", "link", "proxy", "worker")]

    def test_the_same_programs_give_the_same_bytes(self):
        for name, image in self.images.items():
            self.assertEqual(Image(self.outs[1], name).digest, image.digest, name)
        self.assertEqual(*((out / "index.json").read_bytes() for out in self.outs))

    def test_a_daemon_has_an_image_of_its_own(self):
        for name in self.daemons():
            image = self.images[name]
            programs = {pathlib.Path(file).name for file in image.files if file.startswith("usr/bin/")}
            self.assertEqual(programs - {"chown", "rm", "nft"}, {name})
            self.assertEqual(image.config["config"]["Entrypoint"], [f"/usr/bin/{name}"])
            self.assertLess(len(image.tar), len(self.images["sluice"].tar))

    def test_its_user_is_that_of_the_dockerfile(self):
        (user,) = re.findall(r"^USER (\S+)$", _DOCKERFILE, re.M)
        for image in self.images.values():
            self.assertEqual(image.config["config"]["User"], user)
            self.assertEqual(image.config["rootfs"]["diff_ids"], [f"sha256:{hashlib.sha256(image.tar).hexdigest()}"])
            self.assertEqual({(member.uid, member.mtime) for member in image.files.values()}, {(0, 0)})
            self.assertEqual(image.files["tmp"].mode, 0o1777)

    def test_its_list_of_contents_has_every_package(self):
        for name, image in self.images.items():
            text = image.read("usr/share/doc/sluice/sbom.spdx.json")
            self.assertEqual((self.outs[0] / f"{name}.spdx.json").read_bytes(), text)
            document = json.loads(text)
            self.assertEqual(document["spdxVersion"], "SPDX-2.3")
            packages = {package["SPDXID"]: package for package in document["packages"]}
            self.assertEqual(len(packages), len(document["packages"]))
            contained = {
                packages[each["relatedSpdxElement"]]["name"]
                for each in document["relationships"]
                if each["relationshipType"] == "CONTAINS"
            }
            recorded = {file.rpartition("/")[2] for file in image.files if file.startswith("var/lib/dpkg/status.d/")}
            self.assertEqual(contained, recorded)
            self.assertIn("libssl3", contained)
            for program in (file for file in image.files if file.startswith("usr/bin/")):
                digest = hashlib.sha256(image.read(program)).hexdigest()
                self.assertIn(f"{pathlib.Path(program).name} sha256 {digest}", packages["SPDXRef-sluice"]["comment"])

    def test_the_program_that_makes_certificates_is_alone_in_its_image(self):
        if shutil.which("go") is None:
            self.skipTest("there is no go; tests/install-languages installs it")
        first, second = (Image(out, "sluice-certificates") for out in self.outs)
        self.assertEqual(first.digest, second.digest)
        files = {name for name, member in first.files.items() if not member.isdir()}
        self.assertEqual(files, {"usr/bin/sluice-certificates", "usr/share/doc/sluice/sbom.spdx.json"})
        self.assertEqual(first.config["config"]["Entrypoint"], ["/usr/bin/sluice-certificates"])
        self.assertIn("pkg:golang/stdlib@", first.read("usr/share/doc/sluice/sbom.spdx.json").decode())
        dockerfile = (manifests.REPOSITORY / "deploy/image/certificates/Dockerfile").read_text()
        self.assertIn(f"USER {first.config['config']['User']}\n", dockerfile)

    def test_skopeo_reads_them(self):
        if shutil.which("skopeo") is None:
            self.skipTest("skopeo is not installed; it is in Debian's package skopeo")
        for name, image in self.images.items():
            told = subprocess.run(["skopeo", "inspect", f"oci:{self.outs[0]}:{name}"], capture_output=True, check=True, text=True)
            self.assertEqual(json.loads(told.stdout)["Digest"], image.digest)


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
        # A DaemonSet has a user of its own, which owns the folder of its socket on the host.
        for workload in manifests.of_kind(manifests.installed("production"), "Deployment", "StatefulSet", "Job"):
            self.assertEqual(manifests.pod(workload)["spec"]["securityContext"]["runAsUser"], int(user))

    def test_each_stage_with_packages_has_their_fixes_and_a_base_that_can_be_pinned(self):
        clients = (manifests.REPOSITORY / "deploy/image/clients/Dockerfile").read_text()
        for dockerfile in (_DOCKERFILE, clients):
            arguments = set(re.findall(r"^ARG (\w+)=", dockerfile, re.M))
            for base in re.findall(r"^FROM (\S+)", dockerfile, re.M):
                self.assertTrue(base == "scratch" or base.removeprefix("$") in arguments, base)
            copied = re.split(r"^(?=FROM )", dockerfile, flags=re.M)[1 if dockerfile is _DOCKERFILE else 2]
            self.assertIn("apt-get update && apt-get upgrade --yes", copied)

    def test_what_it_copies_exists(self):
        for sources in re.findall(r"^COPY (?!--)(.*) \S+$", self.stages()[0], re.M):
            for source in sources.split():
                self.assertTrue((manifests.REPOSITORY / source).exists(), source)


if __name__ == "__main__":
    _PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
