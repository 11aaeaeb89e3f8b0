# Helpers that give every room the same shape: one static library `sluice_<room>` with an include root of its
# own, warnings as errors, and tests beside the sources.

find_package(Threads REQUIRED)

# Where cuda.h is: an installed toolkit first, else the headers that scripts/bootstrap unpacked from PyPI's wheels.
# Older ones than the table of cuda_abi lack types that it names.
function(sluice_cuda_is_recent result directory)
  file(STRINGS "${directory}/cuda.h" line REGEX "^#define CUDA_VERSION +[0-9]+" LIMIT_COUNT 1)
  string(REGEX REPLACE "[^0-9]" "" version "${line}")
  if(NOT version OR version LESS 13000)
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()
find_path(SLUICE_CUDA_INCLUDE cuda.h
  HINTS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include "${CMAKE_SOURCE_DIR}/.deps/cuda/include"
  VALIDATOR sluice_cuda_is_recent NO_CMAKE_SYSTEM_PATH)
if(NOT SLUICE_CUDA_INCLUDE)
  message(FATAL_ERROR "No cuda.h of CUDA 13.0 or newer. Run scripts/bootstrap, which fetches it, or set SLUICE_CUDA_INCLUDE.")
endif()
add_library(sluice_cuda_headers INTERFACE)
target_include_directories(sluice_cuda_headers SYSTEM INTERFACE "$<BUILD_INTERFACE:${SLUICE_CUDA_INCLUDE}>")

# Flags that every target of ours is compiled with; third-party targets are not.
add_library(sluice_flags INTERFACE)
target_compile_options(sluice_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wshadow>
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  $<$<COMPILE_LANGUAGE:C,CXX>:-Werror -fvisibility=hidden>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang>>:-Wthread-safety>)
if(SLUICE_SANITIZE)
  target_compile_options(sluice_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer>
    $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize-recover=all>
    # NVML and the driver are opened at run time; what we declare of them has our types, which are ABI-compatible.
    $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
  target_compile_definitions(sluice_flags INTERFACE SLUICE_SANITIZED)
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()
if(SLUICE_FUZZERS)  # the code under test counts its branches, or the fuzzer would search blindly
  target_compile_options(sluice_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>)
endif()

# sluice_room(board SOURCES board.cc DEPS base [PUBLIC_LIBS fmt::fmt] [PRECOMPILE <nlohmann/json.hpp>])
# PRECOMPILE names large headers of other projects that most of the room's sources include; it only saves time.
function(sluice_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PUBLIC_LIBS;PRECOMPILE" ${ARGN})
  add_library(sluice_${name} STATIC ${ARG_SOURCES})
  target_precompile_headers(sluice_${name} PRIVATE ${ARG_PRECOMPILE})
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/include/*.h")
  target_sources(sluice_${name} PUBLIC FILE_SET HEADERS
    BASE_DIRS "${CMAKE_CURRENT_SOURCE_DIR}/include" FILES ${headers})
  target_link_libraries(sluice_${name} PRIVATE sluice_flags PUBLIC Threads::Threads ${ARG_PUBLIC_LIBS})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(sluice_${name} PUBLIC sluice_${dep})
  endforeach()
  set_target_properties(sluice_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()

# What almost every test includes, precompiled once for all of them; it only saves time.
if(SLUICE_TESTS)
  add_executable(sluice_test_headers EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/test_headers.cc")
  target_link_libraries(sluice_test_headers PRIVATE sluice_flags GTest::gtest GTest::gmock GTest::gtest_main)
  target_precompile_headers(sluice_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
endif()

# sluice_test(board_test SOURCES board_test.cc DEPS sluice_board [LABELS concurrent])
# The label `concurrent` puts a test into the TSan run, and its program into the target `concurrent_tests`.
add_custom_target(concurrent_tests)
function(sluice_test name)
  if(NOT SLUICE_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_flags ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_precompile_headers(${name} REUSE_FROM sluice_test_headers)
  foreach(source IN LISTS ARG_SOURCES)
    if(source MATCHES "\\.c$")
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  if("concurrent" IN_LIST ARG_LABELS)
    add_dependencies(concurrent_tests ${name})
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()

# sluice_fuzzer(toml_fuzz SOURCES toml_fuzz.cc DEPS sluice_cli): a libFuzzer target in <build>/fuzz, and one of `fuzzers`.
# Seeds lie in a directory named corpus/<name>.
add_custom_target(fuzzers)
function(sluice_fuzzer name)
  if(NOT SLUICE_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_flags ${ARG_DEPS})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers ${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fuzz")
endfunction()
