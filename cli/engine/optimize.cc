// sluice optimize: what the passes make of a model, as an ONNX file for any runtime.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "../output.h"
#include "engine_verbs.h"
#include "progress.h"

namespace sluice::cli {
namespace {

struct Words {
  std::string model, out, precision = "fp32";
  std::vector<std::string> dims, passes_off;
  std::int64_t batch = 0;
  bool json = false;
};

// The names of open first dimensions, which --batch fixes. Loads the model, for its inputs only.
Status add_batch(const Words& words, engine::OptimizeOptions& options) {
  engine::Options plain;
  plain.passes_off = {"all"};
  auto model = engine::Model::load(words.model, plain);
  if (!model.ok()) {
    return model.status();
  }
  bool found = false;
  for (const engine::TensorSpec& spec : (*model)->inputs()) {
    if (!spec.has_rank || spec.dims.empty() || spec.dims[0] >= 0) {
      continue;
    }
    if (spec.symbols.empty() || spec.symbols[0].empty()) {
      return Status::error(Code::kInvalidArgument,
                           "the first dimension of input '%.60s' is open but has no name, so it "
                           "cannot be fixed",
                           spec.name.c_str());
    }
    const auto dim = std::pair(spec.symbols[0], words.batch);
    if (std::find(options.dims.begin(), options.dims.end(), dim) == options.dims.end()) {
      options.dims.push_back(dim);
    }
    found = true;
  }
  return found ? Status()
               : Status::error(Code::kInvalidArgument, "no input has an open first dimension; leave --batch out");
}

nlohmann::json to_json(const Words& words, const engine::OptimizeReport& report) {
  nlohmann::json fp32 = nlohmann::json::array();
  for (const auto& [op, nodes] : report.fp32_operators) {
    fp32.push_back({{"op", op}, {"nodes", nodes}});
  }
  return {{"model", words.model},
          {"out", words.out},
          {"precision", words.precision},
          {"opset", report.opset},
          {"operators_before", report.operators_before},
          {"operators_after", report.operators_after},
          {"bytes_before", report.bytes_before},
          {"bytes_after", report.bytes_after},
          {"file_bytes", report.file_bytes},
          {"external_data", report.external_data.empty() ? nlohmann::json() : nlohmann::json(report.external_data)},
          {"fp16_operators", report.fp16_operators},
          {"fp32_operators", std::move(fp32)},
          {"passes", passes_json(report.passes)}};
}

void print_text(const Words& words, const engine::OptimizeReport& report) {
  std::fputs(passes_table(report.passes).c_str(), stdout);
  const auto mb = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  fmt::print("\noperators  {} -> {}\nweights    {:.1f} -> {:.1f} MB\n", report.operators_before, report.operators_after,
             mb(report.bytes_before), mb(report.bytes_after));
  if (words.precision == "fp16") {
    std::vector<std::string> kept;
    for (const auto& [op, nodes] : report.fp32_operators) {
      kept.push_back(fmt::format("{} {}", nodes, op));
    }
    fmt::print("precision  {} operators in FP16; in FP32: {}\n", report.fp16_operators,
               kept.empty() ? "none" : fmt::format("{}", fmt::join(kept, ", ")));
  }
  fmt::print("written    {}, {:.1f} MB, opset {}{}\n", words.out, mb(report.file_bytes), report.opset,
             report.external_data.empty() ? "" : ", weights in " + report.external_data);
}

}  // namespace

int optimize_model(std::vector<std::string> args) {
  Words words;
  engine::OptimizeOptions options;
  CLI::App app(
      "Writes a model with constants folded and what cancels out removed, optionally in FP16, as standard ONNX.",
      "optimize");
  set_usage(app, "Usage: sluice optimize MODEL.onnx -o OUT.onnx [OPTIONS]");
  app.add_option("MODEL", words.model, "An ONNX file");
  app.add_option("-o,--out", words.out, "The file to write");
  app.add_option("--precision", words.precision, "fp32 (default) or fp16");
  app.add_option("--fp32-weights", options.fp32_weights,
                 "With fp16: the share of the weights that may stay FP32, the smallest ones; default 0.1")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("-b,--batch", words.batch, "Fixes open first dimensions")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  app.add_option("--dim", words.dims, "NAME=VALUE: fixes another open dimension")->allow_extra_args(false);
  app.add_flag("--external-data", options.external_data, "Weights into a file of their own, beside the model");
  app.add_option("--passes-off", words.passes_off, "Leave passes out: " + pass_list())->allow_extra_args(false);
  app.add_flag("--print-passes", options.print_passes, "Print the graph before and after each pass");
  app.add_flag("--json", words.json, "As JSON; docs/optimize.md has the keys");
  if (std::optional<int> code = parse(app, std::move(args))) return *code;
  if (words.model.empty() || words.out.empty()) {
    return usage_error(
        "optimize", words.model.empty() ? "no model; see sluice optimize --help" : "nowhere to write; add -o OUT.onnx");
  }
  auto precision = parse_precision(words.precision);
  auto dims = parse_dims(words.dims);
  if (!precision.ok() || !dims.ok()) {
    return refuse("optimize", precision.ok() ? dims.status() : precision.status());
  }
  options.precision = *precision;
  options.passes_off = split_commas(words.passes_off);
  options.dims.assign(dims->begin(), dims->end());
  Progress progress;
  progress.show("optimising " + words.model);
  Status status = words.batch > 0 ? add_batch(words, options) : Status();
  Result<engine::OptimizeReport> report = status;
  if (status.ok()) {
    report = engine::optimize(words.model, words.out, options);
  }
  progress.clear();
  if (!report.ok()) {
    return refuse("optimize", report.status());
  }
  if (words.json) {
    print_json(to_json(words, *report));
  } else {
    print_text(words, *report);
  }
  return kExitOk;
}

}  // namespace sluice::cli
