// The verbs of the program `engine`: those that need the engine and its libraries, which `sluice run` must not load.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../verbs.h"
#include "sluice/engine.h"

namespace sluice::cli {

int infer(std::vector<std::string> args);
int optimize_model(std::vector<std::string> args);

// Says what is wrong with a model, an input or an option and returns the exit code: 3 where there is no such device, 1
// for a fault of Sluice's own, else 2.
int refuse(const std::string& verb, const Status& status);

// Errors of all options below: kInvalidArgument.
Result<engine::Precision> parse_precision(const std::string& text);
const char* precision_name(engine::Precision precision);
// "NAME=VALUE" each, VALUE at least 1.
Result<std::map<std::string, std::int64_t>> parse_dims(const std::vector<std::string>& texts);
// Names with commas between, in any number of arguments.
std::vector<std::string> split_commas(const std::vector<std::string>& texts);
// "all, constant_folding, ...": what --passes-off takes, for help.
std::string pass_list();

// A row a pass that changed something: what it did to the number of nodes and the bytes of constants.
std::string passes_table(const std::vector<engine::PassReport>& passes);
nlohmann::json passes_json(const std::vector<engine::PassReport>& passes);

}  // namespace sluice::cli
