# Every dependency of Sluice but gRPC, in the oldest version that is tested: the one of Debian 12. Newer upstream versions
# are accepted. Also read by the installed package, so that consumers find the same set.
#
# protobuf comes first and by CONFIG where upstream ships it (22 and newer), else by CMake's own module (Debian 12).
find_package(Protobuf CONFIG QUIET)
if(NOT Protobuf_FOUND)
  find_package(Protobuf 3.21 MODULE REQUIRED)
endif()
find_package(absl REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(Threads REQUIRED)
# Messages that are compressed with gzip.
find_package(ZLIB 1.2 REQUIRED)
find_package(PkgConfig REQUIRED)
# CRC32C in hardware. Debian 12 has no crc32c package; ISA-L's crc32_iscsi is the same polynomial.
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal)
# Frames, header compression and flow control of HTTP/2.
pkg_check_modules(nghttp2 REQUIRED IMPORTED_TARGET libnghttp2>=1.52)
# Netlink messages, to ask the kernel for the TCP connections of a process.
pkg_check_modules(libmnl REQUIRED IMPORTED_TARGET libmnl)
