#!/usr/bin/env python3
"""Tests the vcpkg port and the Conan recipe of deploy/packages as far as possible without these tools' own sources:
recipes_test.py. `conan create` with deploy/packages/conan/debian.profile builds the recipe."""

import ast
import json
import pathlib
import re
import unittest

_REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
_PORT = _REPOSITORY / "deploy/packages/vcpkg/sluice"
_RECIPE = _REPOSITORY / "deploy/packages/conan/conanfile.py"
# What CMake looks for -> the names in vcpkg and in Conan. None: from the system, or part of the compiler or the build.
_NAMES = {
    "Protobuf": ("protobuf", "protobuf"),
    "absl": ("abseil", "abseil"),
    "Boost": ("boost-asio", "boost"),
    "OpenSSL": ("openssl", "openssl"),
    "prometheus-cpp": ("prometheus-cpp", "prometheus-cpp"),
    "spdlog": ("spdlog", "spdlog"),
    "ZLIB": ("zlib", "zlib"),
    "isal": ("isal", "isa-l"),
    "nghttp2": ("nghttp2", "libnghttp2"),
    "libmnl": (None, "libmnl"),
    "gRPC": ("grpc", "grpc"),
    "CLI11": ("cli11", "cli11"),
    "Threads": None,
    "PkgConfig": None,
}


def read(path):
    return (_REPOSITORY / path).read_text()


def looked_for():
    text = read("cmake/SluiceDependencies.cmake") + read("cmake/SluiceGrpc.cmake") + read("lib/cli/CMakeLists.txt")
    return set(re.findall(r"(?:find_package|pkg_check_modules)\((\S+)", re.sub(r"#.*", "", text)))


def version():
    return re.search(r"project\(sluice VERSION (\S+)", read("CMakeLists.txt"))[1]


class PortTest(unittest.TestCase):
    manifest = json.loads((_PORT / "vcpkg.json").read_text())

    def names(self):
        all_of = self.manifest["dependencies"] + [each for feature in self.manifest["features"].values() for each in feature["dependencies"]]
        return {each if isinstance(each, str) else each["name"] for each in all_of}

    def test_its_version_is_that_of_the_project(self):
        self.assertEqual(self.manifest["version"], version())

    def test_it_has_every_dependency(self):
        for name in looked_for():
            if _NAMES[name] is not None and _NAMES[name][0] is not None:
                self.assertIn(_NAMES[name][0], self.names())

    def test_it_moves_every_program(self):
        names = re.search(r"TOOL_NAMES\s+([^)]+)\)", (_PORT / "portfile.cmake").read_text())[1].split()
        programs = re.findall(r"sluice_manual\((sluice-\S+)", read("cmake/SluicePackages.cmake"))
        self.assertEqual(sorted(names), sorted(programs))

    def test_its_options_exist(self):
        options = set(re.findall(r"\b(SLUICE_\w+)", (_PORT / "portfile.cmake").read_text()))
        self.assertEqual({option for option in options if f"option({option} " not in read("CMakeLists.txt")}, set())


class RecipeTest(unittest.TestCase):
    text = _RECIPE.read_text()

    def test_it_has_every_dependency(self):
        strings = {node.value for node in ast.walk(ast.parse(self.text)) if isinstance(node, ast.Constant)}
        names = {str(string).partition("/")[0] for string in strings}
        for name in looked_for():
            if _NAMES[name] is not None:
                self.assertIn(_NAMES[name][1], names)

    def test_its_options_exist(self):
        for option in set(re.findall(r"\b(SLUICE_\w+)", self.text)):
            self.assertIn(f"option({option} ", read("CMakeLists.txt"))

    def test_its_profile_has_every_dependency(self):
        profile = (_RECIPE.parent / "debian.profile").read_text()
        for package in set(re.findall(r'"([a-z0-9-]+)/\[', self.text)) - {"grpc"}:
            self.assertRegex(profile, rf"(?m)^{package}/\d")


if __name__ == "__main__":
    unittest.main(verbosity=2)
