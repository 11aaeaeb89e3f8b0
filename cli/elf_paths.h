// What an ELF file says about where its libraries are. Reads only, and trusts nothing in the file. Thread safe.
#pragma once

#include <string>

namespace sluice::cli {

// DT_RPATH of a 64-bit executable where it is in force (without DT_RUNPATH), else "".
std::string rpath_of(const std::string& path);

// A libcuda.so.1 or libcuda.so in one of the folders of that DT_RPATH, where the loader finds it before it looks into
// LD_LIBRARY_PATH. "" if there is none.
std::string driver_in_rpath(const std::string& path);

}  // namespace sluice::cli
