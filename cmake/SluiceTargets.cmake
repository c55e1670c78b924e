# How a target of Sluice is made: one function for libraries, one for programs, so that every target has the same
# language level, warnings and sanitizers.

set(sluice_warnings "")
if(PROJECT_IS_TOP_LEVEL)
  # Warnings are ours to keep clean, and no reason for a consumer's build to fail.
  # A designated initializer leaves the other fields to their defaults; that is what it is for.
  set(sluice_warnings -Wall -Wextra -Werror -Wno-missing-field-initializers)
  find_program(CCACHE ccache)
  if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  endif()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  # The test programs take 8 s each to link by ld.bfd, 1.5 s by gold, which binutils of Debian 12 brings along. gold warns of
  # every hidden symbol of clang's sanitizers, so clang takes its own lld.
  set(linker gold)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(linker lld)
  endif()
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=${linker} SLUICE_HAS_LINKER)
  if(SLUICE_HAS_LINKER)
    add_link_options(-fuse-ld=${linker})
  endif()
  # Hardened like the rest of the preset release. GCC refuses the flag on arm64, so it is not in the preset.
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-fcf-protection SLUICE_HAS_CF_PROTECTION)
  if(SLUICE_HAS_CF_PROTECTION)
    add_compile_options($<$<CONFIG:RelWithDebInfo>:-fcf-protection>)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Half a GiB before the first collection of garbage: 7 % of the compiler's time, for a fifth more memory.
    add_compile_options("SHELL:--param ggc-min-heapsize=524288")
  endif()
  # A program takes of a library what it uses, also where the library is one object file (a unity build).
  add_compile_options(-ffunction-sections -fdata-sections)
  add_link_options(-Wl,--gc-sections)
endif()

function(sluice_configure target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE ${sluice_warnings})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_compile_options(${target} PRIVATE -Wthread-safety)
  endif()
  if(SLUICE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${SLUICE_SANITIZE})
    if(SLUICE_SANITIZE MATCHES undefined)
      # The check of vptr opens a pipe to see whether it may read an object. If the process has no descriptor left, as in
      # tests of that, it reports an object that is sound. AddressSanitizer finds calls on objects that are gone.
      target_compile_options(${target} PRIVATE -fno-sanitize=vptr)
    endif()
    if(SLUICE_SANITIZE MATCHES thread)
      # ThreadSanitizer does not know fences. Asio's stand beside mutexes that it does know.
      target_compile_definitions(${target} PRIVATE BOOST_ASIO_DISABLE_FENCED_BLOCK)
    endif()
  endif()
  get_target_property(type ${target} TYPE)
  if(SLUICE_BUILD_FUZZERS AND NOT type STREQUAL EXECUTABLE)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)  # coverage, which guides libFuzzer
  endif()
endfunction()

# sluice_compile_alone(a.cc ...): not together with the other files of its target where the preset does that (a unity build),
# since it has names of its own that another file has, too.
function(sluice_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# sluice_library(model SOURCES ... DEPENDS ...): the layer sluice::model in this folder. GRPC: it links gRPC, so it is
# installed for those who have that. Always static, also for users who set BUILD_SHARED_LIBS: docs/reference/stability.md
# promises no binary interface, and public headers have types of Abseil, whose namespace has another name in each release.
function(sluice_library name)
  cmake_parse_arguments(arg "GRPC" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(sluice_${name} STATIC ${arg_SOURCES})
  add_library(sluice::${name} ALIAS sluice_${name})
  set_target_properties(sluice_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(sluice_${name}
    PUBLIC $<BUILD_INTERFACE:${sluice_SOURCE_DIR}/lib/include> $<INSTALL_INTERFACE:include>
    PRIVATE ${sluice_SOURCE_DIR})
  target_link_libraries(sluice_${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE_DEPENDS})
  sluice_configure(sluice_${name})
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
# case; under sanitizers, a quarter of the cases. The label core means no gRPC, and threads that it also has threads:
# ThreadSanitizer runs those. Without a label it is grpc. The target core_tests builds all with that label. COST is the
# seconds of the longest case: on a machine that has not run it yet, ctest begins with the most costly.
function(sluice_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;COST;LABELS" "SOURCES;DEPENDS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_COST)
    set(arg_COST 0)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS grpc)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${sluice_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  sluice_configure(${name})
  if(SLUICE_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)  # the library is what has to be fast; half the time to compile
  endif()
  if(TARGET thread_sanitizer_abseil)
    target_link_libraries(${name} PRIVATE thread_sanitizer_abseil)
  endif()
  if(TARGET ${arg_LABELS}_tests)
    add_dependencies(${arg_LABELS}_tests ${name})
  endif()
  if(NOT SLUICE_SANITIZE)
    gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
      PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${arg_COST} LABELS "${arg_LABELS}")
    return()
  endif()
  # Under a sanitizer a process takes a fifth of a second to start. So each runs a quarter of the cases.
  foreach(shard RANGE 3)
    add_test(NAME ${name}.${shard} COMMAND ${name})
    set_tests_properties(${name}.${shard} PROPERTIES ENVIRONMENT "GTEST_TOTAL_SHARDS=4;GTEST_SHARD_INDEX=${shard}"
      TIMEOUT 900 COST ${arg_COST} LABELS "${arg_LABELS}")
  endforeach()
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
