// NumPy's .npz files: zip archives of .npy files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "arrays.h"

namespace sluice::cli {

// All arrays by name. Errors: kNotFound, kInvalidArgument, kResourceExhausted (more than 1024 arrays, or together over
// kArrayBytesLimit); messages begin with the path.
Result<std::map<std::string, Array>> read_npz_file(const std::string& path);

// Not compressed, as numpy.savez. Errors: kInvalidArgument (the file cannot be written), kUnimplemented.
Status write_npz_file(const std::string& path, const std::vector<NamedView>& arrays);

}  // namespace sluice::cli
