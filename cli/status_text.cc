#include "status_text.h"

#include <fmt/format.h>

#include <vector>

#include "sluice/base/clock.h"
#include "sluice/base/units.h"
#include "summary.h"

namespace sluice::cli::shown {

using nlohmann::json;

const json& at(const json& object, const char* key) {
  static const json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

const json& list_at(const json& object, const char* key) {
  static const json empty = json::array();
  const json& list = at(object, key);
  return list.is_array() ? list : empty;
}

std::string text(const json& value) { return value.is_string() ? value.get<std::string>() : kUnknown; }

std::string whole(const json& value) { return value.is_number_integer() ? value.dump() : kUnknown; }

std::string count(const json& value) {
  return value.is_number_unsigned() ? grouped(value.get<std::uint64_t>()) : kUnknown;
}

std::string bytes(const json& value) {
  return value.is_number_unsigned() ? format_bytes(value.get<std::uint64_t>()) : kUnknown;
}

std::string duration(const json& micros) {
  return micros.is_number_unsigned() ? format_duration_ns(micros.get<std::uint64_t>() * kNanosPerMicro) : kUnknown;
}

std::string percent(const json& ratio) {
  return ratio.is_number() ? fmt::format("{:.0f} %", ratio.get<double>() * 100) : kUnknown;
}

std::string state(const json& job) {
  std::string result = text(at(job, "state"));
  const json& holders = list_at(job, "held_by");
  if (result != "held" || holders.empty()) return result;
  result += " by";
  for (const json& holder : holders) result += " " + whole(holder);
  return result;
}

std::string gpus(const json& status, const json& job) {
  std::string result;
  for (const json& uuid : list_at(job, "devices")) {
    std::string name = text(uuid);
    for (const json& device : list_at(status, "devices")) {
      if (at(device, "uuid") == uuid && at(device, "index").is_number_integer()) name = at(device, "index").dump();
    }
    result += (result.empty() ? "" : ",") + name;
  }
  return result.empty() ? kUnknown : result;
}

// What else there is to say of a card.
std::string remarks(const json& device) {
  std::vector<std::string> all;
  if (at(device, "lost") == true) all.emplace_back("does not answer");
  if (const json& why = at(device, "out_of_use"); why.is_string()) all.push_back("out of use: " + text(why));
  std::string reasons;
  for (const json& reason : list_at(device, "throttle"))
    reasons += (reasons.empty() ? "throttled: " : ", ") + text(reason);
  if (!reasons.empty()) all.push_back(reasons);
  if (const json& low = at(device, "low_jobs_ratio"); low.is_number() && low < 1.0)
    all.push_back("too hot: low jobs get " + percent(low));
  if (const json& mhz = at(device, "clocks_locked_mhz"); mhz.is_number_integer())
    all.push_back("clocks locked at " + whole(mhz) + " MHz");
  if (at(device, "simulated") == true) all.emplace_back("simulated");
  return fmt::format("{}", fmt::join(all, "; "));
}

}  // namespace sluice::cli::shown
