#include "view.h"

#include <fmt/format.h>

#include <algorithm>

#include "../output.h"
#include "sluice/base/units.h"

namespace sluice::cli::doctor {
namespace {

constexpr char kNotAvailable[] = "N/A";
constexpr std::size_t kNameColumns = 26;
constexpr std::size_t kIndent = 10;  // behind the longest severity

std::string short_name(std::string name) {
  constexpr std::string_view kMaker = "NVIDIA ";
  if (name.starts_with(kMaker)) name.erase(0, kMaker.size());
  return name.size() > kNameColumns ? name.substr(0, kNameColumns - 3) + "..." : name;
}

std::string of(const std::optional<unsigned>& now, const std::optional<unsigned>& most, const char* unit) {
  if (!now) return kNotAvailable;
  return most ? fmt::format("{} of {} {}", *now, *most, unit) : fmt::format("{} {}", *now, unit);
}

std::optional<unsigned> watts(const std::optional<unsigned>& milliwatts) {
  return milliwatts ? std::optional<unsigned>((*milliwatts + 500) / 1000) : std::nullopt;
}

std::string memory(const health::Device& device) {
  if (!device.memory_used_bytes || !device.memory_total_bytes) return kNotAvailable;
  return format_bytes(*device.memory_used_bytes) + " of " + format_bytes(*device.memory_total_bytes);
}

std::string cards_table(const Facts& facts) {
  using Align = Table::Align;
  Table table({{"GPU", Align::kRight},
               {"NAME", Align::kLeft},
               {"HEAT", Align::kRight},
               {"POWER", Align::kRight},
               {"MEMORY", Align::kRight},
               {"PCIE", Align::kLeft},
               {"ECC", Align::kLeft}});
  for (const CardFacts& card : facts.cards) {
    const health::Vitals v = card.vitals.value_or(health::Vitals());
    const std::string link =
        v.pcie_generation && v.pcie_width ? fmt::format("{} x{}", *v.pcie_generation, *v.pcie_width) : kNotAvailable;
    table.add({std::to_string(card.device.index), short_name(card.device.name.empty() ? "?" : card.device.name),
               of(v.temperature_c, std::nullopt, "C"), of(watts(v.power_mw), watts(v.power_limit_mw), "W"),
               memory(card.device), link, v.ecc ? (*v.ecc ? "on" : "off") : kNotAvailable});
  }
  return table.text();
}

std::string heading(const Facts& facts) {
  const DriverFacts& driver = facts.driver;
  if (driver.version.empty()) return "";
  std::string text = "driver " + driver.version;
  if (driver.cuda_version)
    text += fmt::format(", CUDA {}.{}", *driver.cuda_version / 1000, *driver.cuda_version % 1000 / 10);
  if (driver.simulated) text += "; simulated";
  return printable(text) + "\n";
}

const char* colour_of(Severity severity) {
  switch (severity) {
    case Severity::kCritical:
      return "\033[1;31m";
    case Severity::kWarning:
      return "\033[1;33m";
    case Severity::kNote:
      break;
  }
  return "\033[1m";
}

std::string finding_text(const Finding& finding, bool coloured) {
  std::string name = severity_name(finding.severity);
  const std::string padding(kIndent - name.size(), ' ');
  if (coloured) name = colour_of(finding.severity) + name + "\033[0m";
  const std::string about = finding.gpu ? fmt::format("GPU {}: ", *finding.gpu) : "";
  const std::string evidence = printable(about + finding.evidence + " [" + finding.id + "]");
  return name + padding + wrapped(evidence, kIndent, kIndent) + "\n" + std::string(kIndent, ' ') +
         wrapped(finding.advice, kIndent, kIndent) + "\n";
}

std::string tally(const std::vector<Finding>& findings) {
  std::string text;
  for (const Severity severity : {Severity::kCritical, Severity::kWarning, Severity::kNote}) {
    const auto number = std::count_if(findings.begin(), findings.end(),
                                      [&](const Finding& finding) { return finding.severity == severity; });
    if (number == 0) continue;
    const bool plural = number > 1 && severity != Severity::kCritical;
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", number, severity_name(severity), plural ? "s" : "");
  }
  return (text.empty() ? "nothing found" : text) + "\n";
}

}  // namespace

std::string wrapped(const std::string& text, std::size_t used, std::size_t indent, std::size_t width) {
  std::string out;
  std::size_t column = used;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::size_t length = end - at;
    if (at > 0) {
      const bool fits = column + 1 + length <= width;
      out += fits ? " " : "\n" + std::string(indent, ' ');
      column = fits ? column + 1 : indent;
    }
    out += text.substr(at, length);
    column += length;
    at = end + 1;
  }
  return out;
}

std::string to_text(const Facts& facts, const std::vector<Finding>& findings, bool coloured) {
  std::string text = heading(facts);
  if (!facts.cards.empty()) text += cards_table(facts);
  for (const CardFacts& card : facts.cards) {
    const std::vector<std::string> missing = not_available(card);
    if (missing.empty() || !card.vitals || card.vitals->lost) continue;
    text += wrapped(fmt::format("GPU {} does not tell: {}", card.device.index, fmt::join(missing, ", ")), 0, 2) + "\n";
  }
  if (!text.empty()) text += "\n";
  for (const Finding& finding : findings) text += finding_text(finding, coloured);
  return text + (findings.empty() ? "" : "\n") + tally(findings);
}

}  // namespace sluice::cli::doctor
