// The facts and findings as people and programs read them. Pure; thread safe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "judge.h"

namespace sluice::cli::doctor {

// docs/doctor.md has the keys.
nlohmann::json to_json(const Facts& facts, const std::vector<Finding>& findings);

// At most 80 columns where no single word is longer; with colours for a terminal if `coloured`.
std::string to_text(const Facts& facts, const std::vector<Finding>& findings, bool coloured);

// Breaks `text` at blanks so that lines end before `width`; all but the first begin with `indent` blanks, and `used`
// columns of the first are taken.
std::string wrapped(const std::string& text, std::size_t used, std::size_t indent, std::size_t width = 80);

}  // namespace sluice::cli::doctor
