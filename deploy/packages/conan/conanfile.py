"""A Conan recipe of this checkout: conan create deploy/packages/conan --build=missing"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.gnu import PkgConfigDeps

_SOURCES = ("CMakeLists.txt", "cmake/*", "lib/*", "proto/*", "aggregator/*", "worker/*", "proxy/*", "link/*", "tools/*")


class SluiceConan(ConanFile):
    name = "sluice"
    description = "RPC middleware that prevents TCP incast"
    topics = ("rpc", "grpc", "tcp", "incast")
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"fPIC": [True, False], "grpc": [True, False]}
    default_options = {"fPIC": True, "grpc": False}

    @property
    def _repository(self):
        return os.path.join(self.recipe_folder, "..", "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self._repository, "CMakeLists.txt"))
        self.version = re.search(r"project\(sluice VERSION (\S+)", text)[1]

    def export_sources(self):
        for pattern in _SOURCES:
            copy(self, pattern, self._repository, self.export_sources_folder)
        copy(self, "copyright", os.path.join(self._repository, "deploy", "packages"), self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("Sluice reads TCP_INFO and netlink, so it runs on Linux alone")
        check_min_cppstd(self, 20)

    def requirements(self):
        # Their headers are included by the public headers of Sluice.
        for package in ("abseil/[>=20220623.1]", "boost/[>=1.74.0]", "protobuf/[>=3.21.12]"):
            self.requires(package, transitive_headers=True)
        for package in ("isa-l/[>=2.30.0]", "libmnl/[>=1.0.4]", "libnghttp2/[>=1.52.0]", "openssl/[>=3.0 <4]", "prometheus-cpp/[>=1.0.1]",
                        "spdlog/[>=1.10.0]", "zlib/[>=1.2.11 <2]"):  # fmt: skip
            self.requires(package)
        self.requires("cli11/[>=2.1.2]", visible=False)  # of a part that is not installed
        if self.options.grpc:
            self.requires("grpc/[>=1.51.0]")

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.25]")
        self.tool_requires("protobuf/<host_version>")

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update({
            "SLUICE_BUILD_APPS": False, "SLUICE_BUILD_TESTS": False, "SLUICE_BUILD_BENCHMARKS": False,
            "SLUICE_INSTALL": True, "CMAKE_DISABLE_FIND_PACKAGE_gRPC": not self.options.grpc,
        })  # fmt: skip
        toolchain.generate()
        CMakeDeps(self).generate()
        pkg_config = PkgConfigDeps(self)
        pkg_config.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "copyright", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):
        # The package has its own CMake files, which name the targets and their order.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "sluice")]
