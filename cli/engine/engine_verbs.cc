#include "engine_verbs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "../output.h"
#include "sluice/base/status.h"

namespace sluice::cli {

int refuse(const std::string& verb, const Status& status) {
  const int code = fail(verb, status);
  return code == kExitFailed && status.code() != Code::kInternal ? kExitUsage : code;
}

Result<engine::Precision> parse_precision(const std::string& text) {
  if (text == "fp32") {
    return engine::Precision::kFp32;
  }
  if (text == "fp16") {
    return engine::Precision::kFp16;
  }
  return Status::error(Code::kInvalidArgument, "there is no precision '%.40s'; use fp32 or fp16", text.c_str());
}

const char* precision_name(engine::Precision precision) {
  return precision == engine::Precision::kFp16 ? "fp16" : "fp32";
}

Result<std::map<std::string, std::int64_t>> parse_dims(const std::vector<std::string>& texts) {
  std::map<std::string, std::int64_t> dims;
  for (const std::string& text : texts) {
    const std::size_t at = text.rfind('=');
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    if (at != std::string::npos && at > 0) {
      const auto [rest, error] = std::from_chars(text.data() + at + 1, end, value);
      if (error == std::errc() && rest == end && value > 0) {
        dims[text.substr(0, at)] = value;
        continue;
      }
    }
    return Status::error(Code::kInvalidArgument, "'%.60s' gives no dimension; write NAME=VALUE", text.c_str());
  }
  return dims;
}

std::vector<std::string> split_commas(const std::vector<std::string>& texts) {
  std::vector<std::string> parts;
  for (const std::string& text : texts) {
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      if (end > begin) {
        parts.push_back(text.substr(begin, end - begin));
      }
      begin = end + 1;
    }
  }
  return parts;
}

std::string pass_list() { return fmt::format("all, {}", fmt::join(engine::pass_names(), ", ")); }

std::string passes_table(const std::vector<engine::PassReport>& passes) {
  using Align = Table::Align;
  Table table(
      {{"PASS", Align::kLeft}, {"CHANGES", Align::kRight}, {"NODES", Align::kRight}, {"CONSTANTS", Align::kRight}});
  for (const engine::PassReport& pass : passes) {
    if (pass.changes > 0) {
      table.add({std::string(pass.name), std::to_string(pass.changes),
                 fmt::format("{} -> {}", pass.nodes_before, pass.nodes_after),
                 fmt::format("{:.1f} -> {:.1f} MB", static_cast<double>(pass.constant_bytes_before) / 1e6,
                             static_cast<double>(pass.constant_bytes_after) / 1e6)});
    }
  }
  return table.text();
}

nlohmann::json passes_json(const std::vector<engine::PassReport>& passes) {
  nlohmann::json list = nlohmann::json::array();
  for (const engine::PassReport& pass : passes) {
    list.push_back({{"name", pass.name},
                    {"changes", pass.changes},
                    {"nodes_before", pass.nodes_before},
                    {"nodes_after", pass.nodes_after},
                    {"constant_bytes_before", pass.constant_bytes_before},
                    {"constant_bytes_after", pass.constant_bytes_after}});
  }
  return list;
}

}  // namespace sluice::cli
