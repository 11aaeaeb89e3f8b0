// "did you mean": the known word that is closest to a mistyped one. Thread safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

// The closest of `known`, or "" if none is close (more than a third of the letters differ).
std::string closest(std::string_view word, const std::vector<std::string>& known);

// "; did you mean X?" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace sluice::cli
