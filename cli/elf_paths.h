// What an ELF file says about where its libraries are. Reads only, and trusts nothing in the file. Thread safe.
#pragma once

#include <string>

namespace sluice::cli {

// DT_RPATH of a 64-bit executable where it is in force (without DT_RUNPATH), else "".
std::string rpath_of(const std::string& path);

}  // namespace sluice::cli
