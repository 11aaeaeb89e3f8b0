// From facts to findings: pure, no I/O, no clock. Thread safe.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "facts.h"

namespace sluice::cli::doctor {

// A note is worth knowing and no fault; a warning costs speed or will be a fault; critical is broken or wrong results.
enum class Severity { kNote, kWarning, kCritical };
const char* severity_name(Severity severity);

struct Finding {
  std::string id;  // of finding_kinds()
  Severity severity = Severity::kNote;
  std::optional<int> gpu;  // NVML's index; none: it is about the machine
  std::string evidence;
  std::vector<std::pair<std::string, double>> values;  // the numbers of the evidence; the unit is in the key
  std::string advice;
};

// Every finding that there can be: docs/doctor.md has each of them.
struct FindingKind {
  const char* id;
  const char* advice;  // what to do, and how to check it
};
const std::vector<FindingKind>& finding_kinds();

// All findings, worst first, and among equals the machine's before the cards'.
std::vector<Finding> judge(const Facts& facts);

// What the card or driver does not tell, in words, such as "ECC".
std::vector<std::string> not_available(const CardFacts& card);

// No driver, or no card behind it: exit code 3.
bool without_driver(const std::vector<Finding>& findings);

// Bytes/s of one PCIe lane and direction, after the line code; 0 for a generation that is not known.
double pcie_bytes_per_lane(unsigned generation);

// The parts of judge(), each a file.
class Findings {
 public:
  // `id` must be one of finding_kinds(); the advice is that one's.
  void add(const char* id, Severity severity, std::optional<int> gpu, std::string evidence,
           std::vector<std::pair<std::string, double>> values = {});
  std::vector<Finding> sorted() &&;

 private:
  std::vector<Finding> all_;
};
void judge_driver(const Facts& facts, Findings* findings);
void judge_bus(const CardFacts& card, const HostFacts& host, Findings* findings);
void judge_clocks(const CardFacts& card, Findings* findings);
void judge_errors(const CardFacts& card, Findings* findings);
void judge_use(const CardFacts& card, const HostFacts& host, Findings* findings);
void judge_memory(const CardFacts& card, Findings* findings);
void judge_host(const Facts& facts, Findings* findings);
void judge_sluice(const SluiceFacts& sluice, Findings* findings);

}  // namespace sluice::cli::doctor
