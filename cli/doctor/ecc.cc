// sluice doctor ecc: the counts of memory errors; setting them back never loses what they were.
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "../installation.h"
#include "../machine.h"
#include "../output.h"
#include "../verbs.h"
#include "reset_log.h"
#include "sluice/base/user.h"
#include "topics.h"

namespace sluice::cli::doctor {
namespace {

using nlohmann::json;

struct Card {
  health::Device device;
  health::Vitals vitals;
};

json or_null(const std::optional<std::uint64_t>& value) { return value ? json(*value) : json(); }

json counts(const health::EccCounts& ecc) {
  return {{"corrected", or_null(ecc.corrected)}, {"uncorrected", or_null(ecc.uncorrected)}};
}

json to_json(const Card& card) {
  return {{"index", card.device.index},
          {"uuid", card.device.uuid},
          {"name", card.device.name},
          {"ecc", card.vitals.ecc ? json(*card.vitals.ecc) : json()},
          {"volatile", counts(card.vitals.ecc_volatile)},
          {"aggregate", counts(card.vitals.ecc_aggregate)}};
}

// The cards that `wanted` names by index or UUID; all that answer where it names none.
Result<std::vector<Card>> look(const health::Nvml& nvml, const std::string& wanted) {
  Result<std::vector<health::Device>> devices = nvml.devices();
  if (!devices.ok()) return devices.status();
  std::vector<Card> cards;
  for (health::Device& device : *devices) {
    const bool is_wanted = wanted.empty() || wanted == std::to_string(device.index) || wanted == device.uuid;
    if (!is_wanted || device.uuid.empty()) continue;
    Result<health::Vitals> vitals = nvml.vitals(device.uuid);
    if (vitals.ok() && !vitals->lost) cards.push_back({std::move(device), std::move(*vitals)});
  }
  if (cards.empty()) {
    return wanted.empty() ? Status::error(Code::kUnavailable, "no GPU answers")
                          : Status::error(Code::kUnavailable, "no GPU '%.60s' answers here", wanted.c_str());
  }
  return cards;
}

std::string count_text(const std::optional<std::uint64_t>& count) { return count ? std::to_string(*count) : "N/A"; }

void print_table(const std::vector<Card>& cards) {
  using Align = Table::Align;
  Table table({{"GPU", Align::kRight},
               {"NAME", Align::kLeft},
               {"ECC", Align::kLeft},
               {"NEW: CORRECTED", Align::kRight},
               {"UNCORRECTED", Align::kRight},
               {"EVER: CORRECTED", Align::kRight},
               {"UNCORRECTED", Align::kRight}});
  for (const Card& card : cards) {
    const health::Vitals& v = card.vitals;
    table.add({std::to_string(card.device.index), card.device.name, v.ecc ? (*v.ecc ? "on" : "off") : "N/A",
               count_text(v.ecc_volatile.corrected), count_text(v.ecc_volatile.uncorrected),
               count_text(v.ecc_aggregate.corrected), count_text(v.ecc_aggregate.uncorrected)});
  }
  std::fputs(table.text().c_str(), stdout);
}

// Records first; what the driver then refuses is recorded too.
Status reset(const health::Nvml& nvml, const Card& card, ResetLog* log) {
  if (card.vitals.ecc != true) {
    return Status::error(Code::kUnimplemented, "GPU %d (%.80s) counts no memory errors: its ECC is %s",
                         card.device.index, card.device.name.c_str(), card.vitals.ecc ? "off" : "not available");
  }
  json entry = to_json(card);
  entry["event"] = "reset";
  if (Status status = log->append(entry); !status.ok()) return status;
  const Status status = nvml.clear_ecc(card.device.uuid);
  if (status.ok()) return status;
  const Status noted =
      log->append({{"event", "failed"}, {"uuid", card.device.uuid}, {"reason", std::string(status.message())}});
  if (!noted.ok()) return noted;
  if (status.code() != Code::kPermissionDenied) return status;
  return Status::error(Code::kPermissionDenied,
                       "GPU %d: only root may set its counts back: sudo sluice doctor ecc --reset", card.device.index);
}

}  // namespace

int ecc_topic(std::vector<std::string> args) {
  bool as_json = false, wants_reset = false;
  std::string gpu;
  CLI::App app("Shows the counts of memory errors since the driver was loaded, and in the cards' lives.", "doctor ecc");
  set_usage(app, "Usage: sluice doctor ecc [OPTIONS]");
  app.add_flag("--reset", wants_reset,
               "Sets the counts since the driver was loaded to 0, and keeps the old ones in a file");
  app.add_option("-g,--gpu", gpu, "Only this card, by index or UUID")->option_text("GPU");
  app.add_flag("--json", as_json, "As JSON");
  if (std::optional<int> code = parse(app, std::move(args))) return *code;

  const Result<DriverChoice> driver = choose_driver(find_installation());
  if (!driver.ok()) return fail("doctor ecc", driver.status());
  const Result<std::shared_ptr<health::Nvml>> nvml = health::Nvml::open();
  if (!nvml.ok()) return fail("doctor ecc", nvml.status());
  const Result<std::vector<Card>> cards = look(**nvml, gpu);
  if (!cards.ok()) return fail("doctor ecc", cards.status());

  json shown = json::array();
  for (const Card& card : *cards) shown.push_back(to_json(card));
  json result = {{"devices", shown}};
  Status status;
  if (wants_reset) {
    Result<ResetLog> log = ResetLog::open();
    if (!log.ok()) return fail("doctor ecc", log.status());
    for (json& device : result["devices"]) device["reset"] = false;
    result["record"] = log->path();
    for (std::size_t i = 0; i < cards->size(); ++i) {
      // Of all cards, those without ECC are left out; one that was named must have it.
      if (gpu.empty() && (*cards)[i].vitals.ecc != true && cards->size() > 1) continue;
      const Status one = reset(**nvml, (*cards)[i], &*log);
      if (one.ok()) result["devices"][i]["reset"] = true;
      if (status.ok()) status = one;
    }
  }
  if (as_json) {
    print_json(result);
  } else {
    print_table(*cards);
    for (const json& device : result["devices"]) {
      if (device.value("reset", false)) {
        std::printf("GPU %d: set back; the counts above are kept in %s\n", device["index"].get<int>(),
                    printable(result["record"].get<std::string>()).c_str());
      }
    }
  }
  return status.ok() ? kExitOk : fail("doctor ecc", status);
}

}  // namespace sluice::cli::doctor
