// One case of ONNX's conformance data: a folder with model.onnx and test_data_set_*/{input,output}_*.pb.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "sluice/engine.h"

namespace sluice::conformance {

enum class Verdict : char {
  kPassed = 'p',
  kRefused = 'r',  // the engine said that it does not support the model
  kWrong = 'w',    // another result, another error, a crash, or out of time or memory
};

struct Outcome {
  Verdict verdict = Verdict::kWrong;
  std::string message;  // why not passed
};

// As ONNX's own runner compares: |actual - expected| <= kAbsolute + kRelative * |expected|; integers must be equal.
inline constexpr double kRelative = 1e-3;
inline constexpr double kAbsolute = 1e-7;

// In this process.
Outcome run_case(const std::filesystem::path& folder, const engine::Options& options);

// In a process of its own, with a limit of time and memory: a crash is an outcome too.
Outcome run_case_apart(const std::filesystem::path& folder, const engine::Options& options);

// The operator that a case tests, or "(several)".
std::string operator_of(const std::filesystem::path& folder);

// A folder of cases of Debian's libonnx-testdata: "node" (one operator each), "pytorch-converted", "pytorch-operator"
// (what PyTorch exported in 2017), "simple". Empty if it is not installed or there is none of that name.
std::filesystem::path suite_cases(const std::string& suite);
inline std::filesystem::path node_cases() { return suite_cases("node"); }

// Sorted by name.
std::vector<std::filesystem::path> cases_in(const std::filesystem::path& folder);

}  // namespace sluice::conformance
