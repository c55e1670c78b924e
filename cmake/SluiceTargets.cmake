# How a target of Sluice is made: one function for libraries, one for programs, so that every target has the same
# language level, warnings and sanitizers.

set(sluice_warnings "")
if(PROJECT_IS_TOP_LEVEL)
  # Warnings are ours to keep clean, and no reason for a consumer's build to fail.
  # A designated initializer leaves the other fields to their defaults; that is what it is for.
  set(sluice_warnings -Wall -Wextra -Werror -Wno-missing-field-initializers)
  find_program(CCACHE ccache)
  if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # Precompiled headers are cached only with this sloppiness; it is about macros that we do not define that way. They are large, so
    # that ccache should not read them again for each file.
    set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_INODECACHE=1 ${CCACHE})
  endif()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  # The test programs take 8 s each to link by ld.bfd, 1.5 s by gold, which binutils of Debian 12 brings along.
  find_program(GOLD ld.gold)
  if(GOLD)
    add_link_options(-fuse-ld=gold)
  endif()
endif()

# The headers that most files include take most of a compilation, so they are parsed once for all libraries, once for all
# programs and once for all tests, whose options differ. Only in a build of our own: that of the package's tests has none of
# this, and fails where a file of the core does not include what it uses.
set(sluice_common_headers
  <algorithm> <chrono> <functional> <map> <memory> <optional> <string> <utility> <vector>
  <boost/asio/io_context.hpp> <boost/asio/ip/tcp.hpp> <boost/asio/post.hpp> <boost/asio/steady_timer.hpp>
  <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/time/time.h>)

# sluice_precompile_for(tests <gtest/gtest.h>): these and the common headers for whoever says `PRECOMPILED tests`. GCC takes
# no headers from the position-independent code of a library for an executable.
function(sluice_precompile_for kind)
  set(target sluice_precompiled_${kind})
  add_library(${target} OBJECT ${sluice_SOURCE_DIR}/cmake/precompiled.cc)
  target_link_libraries(${target} PRIVATE Boost::headers absl::flat_hash_map absl::statusor)
  sluice_configure(${target} PRECOMPILE <string> ${ARGN})
  if(NOT kind STREQUAL libraries)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIE)
  endif()
endfunction()

# PRECOMPILED: whose headers the target takes, by default those of libraries or programs. PRECOMPILE: headers that it
# includes in many files; it has a precompiled header of its own then.
function(sluice_precompile target)
  cmake_parse_arguments(arg "" "PRECOMPILED" "PRECOMPILE" ${ARGN})
  get_target_property(type ${target} TYPE)
  if(NOT arg_PRECOMPILED AND type STREQUAL EXECUTABLE)
    set(arg_PRECOMPILED programs)
  elseif(NOT arg_PRECOMPILED)
    set(arg_PRECOMPILED libraries)
  endif()
  if(arg_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${sluice_common_headers} ${arg_PRECOMPILE})
  else()
    target_precompile_headers(${target} REUSE_FROM sluice_precompiled_${arg_PRECOMPILED})
  endif()
  # What Boost::headers and -pthread define has to be the same wherever a header is reused.
  target_compile_definitions(${target} PRIVATE BOOST_ALL_NO_LIB _REENTRANT)
  # So that ccache takes precompiled headers, which may be older than what they are made of.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  else()
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()

# sluice_configure(target [PRECOMPILED tests] [PRECOMPILE <grpcpp/grpcpp.h>])
function(sluice_configure target)
  get_target_property(type ${target} TYPE)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE ${sluice_warnings})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_compile_options(${target} PRIVATE -Wthread-safety)
  endif()
  if(SLUICE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${SLUICE_SANITIZE})
    if(SLUICE_SANITIZE MATCHES thread)
      # ThreadSanitizer does not know fences. Asio's stand beside mutexes that it does know.
      target_compile_definitions(${target} PRIVATE BOOST_ASIO_DISABLE_FENCED_BLOCK)
    endif()
  endif()
  if(SLUICE_BUILD_FUZZERS AND NOT type STREQUAL EXECUTABLE)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)  # coverage, which guides libFuzzer
  endif()
  if(PROJECT_IS_TOP_LEVEL)
    sluice_precompile(${target} ${ARGN})
  endif()
endfunction()

# sluice_library(model SOURCES ... DEPENDS ...): the layer sluice::model in this folder. GRPC: it links gRPC, so it is
# installed for those who have that.
function(sluice_library name)
  cmake_parse_arguments(arg "GRPC" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS;PRECOMPILE" ${ARGN})
  add_library(sluice_${name} ${arg_SOURCES})
  add_library(sluice::${name} ALIAS sluice_${name})
  set_target_properties(sluice_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(sluice_${name}
    PUBLIC $<BUILD_INTERFACE:${sluice_SOURCE_DIR}/lib/include> $<INSTALL_INTERFACE:include>
    PRIVATE ${sluice_SOURCE_DIR})
  target_link_libraries(sluice_${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE_DEPENDS})
  sluice_configure(sluice_${name} PRECOMPILE ${arg_PRECOMPILE})
  if(arg_GRPC)
    set_property(GLOBAL APPEND PROPERTY SLUICE_INSTALLED_GRPC_TARGETS sluice_${name})
  else()
    set_property(GLOBAL APPEND PROPERTY SLUICE_INSTALLED_TARGETS sluice_${name})
  endif()
endfunction()

# sluice_program(sluice-cat SOURCES ... DEPENDS ...)
function(sluice_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${sluice_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  sluice_configure(${name})
  set_property(GLOBAL APPEND PROPERTY SLUICE_INSTALLED_PROGRAMS ${name})
endfunction()

# sluice_test(slot_plan_test SOURCES ... DEPENDS ... LABELS core): one GoogleTest program, every case of it one ctest
# case. The label core means no gRPC: ThreadSanitizer runs those. Without a label it is grpc. The target core_tests, or
# grpc_tests, builds all of a label.
function(sluice_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;LABELS" "SOURCES;DEPENDS;PRECOMPILE" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS grpc)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${sluice_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  sluice_configure(${name} PRECOMPILED tests PRECOMPILE ${arg_PRECOMPILE})
  if(SLUICE_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)  # the library is what has to be fast; half the time to compile
  endif()
  if(TARGET thread_sanitizer_abseil)
    target_link_libraries(${name} PRIVATE thread_sanitizer_abseil)
  endif()
  if(TARGET ${arg_LABELS}_tests)
    add_dependencies(${arg_LABELS}_tests ${name})
  endif()
  gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()

# sluice_fuzzer(http2_client_fuzz SOURCES ... DEPENDS ...): a libFuzzer program, for a build with SLUICE_BUILD_FUZZERS,
# which instruments everything of ours. tests/fuzz/run finds it by its name in build/fuzz/fuzzers, and its corpus in
# tests/fuzz/corpus/http2_client (optional).
function(sluice_fuzzer name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${sluice_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzzers)
  sluice_configure(${name})
  add_dependencies(fuzzers ${name})
endfunction()
