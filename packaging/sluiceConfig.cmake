# find_package(sluice): sluice::graph, sluice::memory (C++20) and sluice::capi, sluice::capi_pool (sluice.h).
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/sluiceTargets.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/sluiceCTargets.cmake" OPTIONAL)  # not with the component cpp alone

# The C++ headers include cuda.h.
find_path(SLUICE_CUDA_INCLUDE cuda.h HINTS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
if(SLUICE_CUDA_INCLUDE)
  set_property(TARGET sluice::cuda_headers APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${SLUICE_CUDA_INCLUDE}")
else()
  message(STATUS "sluice: no cuda.h; set SLUICE_CUDA_INCLUDE to use its C++ libraries")
endif()
