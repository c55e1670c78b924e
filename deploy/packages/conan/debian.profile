# Debian 12 has the dependencies as packages, so that nothing else is built:
#   conan create deploy/packages/conan --profile:all=deploy/packages/conan/debian.profile --no-remote
[settings]
arch={{ detect_api.detect_arch() }}
build_type=Release
compiler=gcc
compiler.cppstd=20
compiler.libcxx=libstdc++11
compiler.version=12
os=Linux

[conf]
tools.cmake.cmaketoolchain:generator=Ninja
tools.cmake.cmaketoolchain:extra_variables={"CMAKE_UNITY_BUILD": "ON"}

[platform_requires]
abseil/20220623.1
boost/1.74.0
cli11/2.1.2
isa-l/2.30.0
libmnl/1.0.4
libnghttp2/1.52.0
openssl/3.0.0
prometheus-cpp/1.0.1
protobuf/3.21.12
spdlog/1.10.0
zlib/1.2.13

[platform_tool_requires]
cmake/3.25.1
protobuf/3.21.12
