// sluice infer: a model on given inputs, shown, measured, profiled or checked.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <optional>

#include "../output.h"
#include "check.h"
#include "engine_verbs.h"
#include "infer_options.h"
#include "measure.h"
#include "npz.h"
#include "outputs.h"
#include "profile.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

// One use of the verb.
class Infer {
 public:
  explicit Infer(InferOptions options) : options_(std::move(options)) {}

  int run() {
    if (Status status = open(); !status.ok()) {
      return refuse(status);
    }
    if (options_.check) {
      return check();
    }
    progress_.show("compiling and running");
    if (Status status = session_->run(); !status.ok()) {
      return refuse(status);
    }
    progress_.clear();
    if (Status status = write(); !status.ok()) {
      return refuse(status);
    }
    return options_.bench ? bench() : !options_.profile.empty() ? profile() : show();
  }

 private:
  int refuse(const Status& status) {
    progress_.clear();
    return cli::refuse("infer", status);
  }

  Status open() {
    progress_.show("loading " + options_.model);
    auto model = engine::Model::load(options_.model, options_.engine);
    if (!model.ok()) {
      return model.status();
    }
    model_ = std::move(*model);
    auto inputs = gather_inputs(model_->inputs(), options_.inputs);
    if (!inputs.ok()) {
      return inputs.status();
    }
    inputs_ = std::move(*inputs);
    auto session = engine::Session::create(model_);
    if (!session.ok()) {
      return session.status();
    }
    session_ = std::move(*session);
    return bind_inputs(*model_, *session_, inputs_.arrays);
  }

  Status write() {
    auto outputs = all_outputs(*model_, *session_);
    if (!outputs.ok()) {
      return outputs.status();
    }
    outputs_ = std::move(*outputs);
    if (Status status = write_outputs(outputs_, options_.output_files); !status.ok()) {
      return status;
    }
    return options_.outputs_npz.empty() ? Status() : write_npz_file(options_.outputs_npz, outputs_);
  }

  json about() const {
    return {{"model", options_.model},
            {"device", options_.engine.device},
            {"precision", precision_name(options_.engine.precision)},
            {"batch", inputs_.batch},
            {"threads", model_->threads()}};
  }

  int show() {
    if (options_.json) {
      json report = about();
      report["operators_before"] = model_->operators_before();
      report["operators_after"] = session_->operators_after();
      report["passes"] = passes_json(session_->passes());
      report["outputs"] = outputs_json(outputs_);
      print_json(report);
    } else {
      std::fputs(outputs_table(outputs_).c_str(), stdout);
    }
    return kExitOk;
  }

  int bench() {
    auto latency = measure_latency(*session_, options_.seconds, progress_);
    if (!latency.ok()) {
      return refuse(latency.status());
    }
    const std::uint64_t peak = memory_.peak_bytes();
    const double throughput = latency->runs_per_s * static_cast<double>(inputs_.batch);
    if (options_.json) {
      json report = about();
      report["latency_us"] = {{"p50", latency->p50_us}, {"p99", latency->p99_us}};
      report["throughput_per_s"] = throughput;
      report["peak_memory_bytes"] = peak;
      report["operators_before"] = model_->operators_before();
      report["operators_after"] = session_->operators_after();
      print_json(report);
    } else {
      std::printf("%s\n",
                  fmt::format("{}: {}, {}, batch {}, {} threads\n"
                              "latency     p50 {:.1f} us, p99 {:.1f} us\n"
                              "throughput  {:.1f} samples/s\n"
                              "memory      {:.1f} MB at most\n"
                              "operators   {} in the file, {} after fusion",
                              options_.model, options_.engine.device, precision_name(options_.engine.precision),
                              inputs_.batch, model_->threads(), latency->p50_us, latency->p99_us, throughput,
                              static_cast<double>(peak) / 1e6, model_->operators_before(), session_->operators_after())
                      .c_str());
    }
    return kExitOk;
  }

  int profile() {
    auto profile = measure_profile(*session_, options_.seconds, progress_);
    if (!profile.ok()) {
      return refuse(profile.status());
    }
    profile->update(about());
    auto beside = write_profile(*profile, options_.profile);
    if (!beside.ok()) {
      return refuse(beside.status());
    }
    if (options_.json) {
      print_json(*profile);
    } else {
      std::printf("%s, %s: %zu steps, %.1f us\n", options_.profile.c_str(), beside->c_str(), (*profile)["steps"].size(),
                  (*profile)["latency_us"].get<double>());
    }
    return kExitOk;
  }

  // Tensors in a layout of the kernels' own cannot be compared. Where they all are, the node that drifts first can be
  // named more exactly, if it drifts there too.
  void locate(std::optional<Drift>& first) {
    engine::Options options = options_.engine;
    options.passes_off.emplace_back("layout");
    options.print_passes = false;
    auto model = engine::Model::load(options_.model, options);
    if (!model.ok()) {
      return;
    }
    auto session = engine::Session::create(*model);
    if (!session.ok() || !bind_inputs(**model, **session, inputs_.arrays).ok()) {
      return;
    }
    auto result =
        check_against_reference(**model, **session, options_.model, inputs_.arrays, options_.tolerance, progress_);
    if (result.ok() && result->first) {
      first = result->first;
    }
  }

  int check() {
    auto result =
        check_against_reference(*model_, *session_, options_.model, inputs_.arrays, options_.tolerance, progress_);
    if (result.ok() && result->first && result->uncompared > 0) {
      locate(result->first);
    }
    if (!result.ok()) {
      return refuse(result.status());
    }
    if (Status status = write(); !status.ok()) {
      return refuse(status);
    }
    // Infinite is null in JSON.
    const auto number = [](double error) { return std::isfinite(error) ? json(error) : json(nullptr); };
    if (options_.json) {
      json report = about();
      report["tolerance"] = options_.tolerance;
      report["compared"] = result->compared;
      report["uncompared"] = result->uncompared;
      report["worst"] = {{"value", result->worst}, {"error", number(result->worst_error)}};
      report["drift"] = nullptr;
      if (result->first) {
        report["drift"] = {{"step", result->first->step},
                           {"node", result->first->node},
                           {"op", result->first->op},
                           {"value", result->first->value},
                           {"error", number(result->first->error)}};
      }
      report["ok"] = !result->first;
      print_json(report);
    } else if (result->first) {
      std::printf("drift at step %zu, %s '%s': the relative error of '%s' is %.3g, over %.3g\n", result->first->step,
                  result->first->op.c_str(), result->first->node.c_str(), result->first->value.c_str(),
                  result->first->error, options_.tolerance);
    }
    if (!options_.json) {
      std::printf("%zu tensors compared, %zu not comparable; the largest relative error is %.3g%s\n", result->compared,
                  result->uncompared, result->worst_error,
                  result->worst.empty() ? "" : (", of '" + result->worst + "'").c_str());
    }
    return result->first ? kExitFailed : kExitOk;
  }

  InferOptions options_;
  MemoryMeter memory_;
  Progress progress_;
  std::shared_ptr<engine::Model> model_;
  Inputs inputs_;
  std::unique_ptr<engine::Session> session_;
  std::vector<NamedView> outputs_;
};

}  // namespace

int infer(std::vector<std::string> args) {
  InferOptions options;
  if (std::optional<int> code = parse_infer(std::move(args), options)) return *code;
  return Infer(std::move(options)).run();
}

}  // namespace sluice::cli
