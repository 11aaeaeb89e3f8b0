// The file that a command runs, as execvp would find it. Reads only; thread safe.
#pragma once

#include <string>

namespace sluice::cli {

// The executable that `word` names, searched in `path` (PATH's value) where it has no slash; of a script its
// interpreter, that of "/usr/bin/env NAME" too. "" if there is none.
std::string program_file(const std::string& word, const std::string& path);

}  // namespace sluice::cli
