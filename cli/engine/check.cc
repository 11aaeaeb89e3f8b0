#include "check.h"

#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace sluice::cli {
namespace {

using engine::Session;
using engine::StepView;

struct Kept {
  engine::Dims dims;
  std::vector<double> values;
};

class Comparison {
 public:
  Comparison(const std::map<std::string, Kept>& reference, double tolerance)
      : reference_(reference), tolerance_(tolerance) {}

  // `step`: nullptr for an output after the run.
  void add(const std::string& name, const engine::TensorView& tensor, const StepView* step) {
    const auto found = tensor.data == nullptr ? reference_.end() : reference_.find(name);
    if (found == reference_.end()) {
      result_.uncompared += step != nullptr;
      return;
    }
    if (!seen_.insert(name).second) {
      return;
    }
    const engine::Dims dims(tensor.dims.begin(), tensor.dims.end());
    const double error = dims == found->second.dims ? relative_error(engine::to_doubles(tensor), found->second.values)
                                                    : std::numeric_limits<double>::infinity();
    ++result_.compared;
    if (error > result_.worst_error) {
      result_.worst_error = error;
      result_.worst = name;
    }
    if (error > tolerance_ && !result_.first) {
      result_.first = step == nullptr ? Drift{0, "", "", name, error}
                                      : Drift{step->index, std::string(step->name), std::string(step->op), name, error};
    }
  }
  CheckResult take() { return std::move(result_); }

 private:
  const std::map<std::string, Kept>& reference_;
  double tolerance_;
  std::set<std::string> seen_;
  CheckResult result_;
};

// Every output, also one that is a constant or an input, which no step computes.
template <class Tell>
Status for_outputs(const engine::Model& model, const Session& session, const Tell& tell) {
  for (std::size_t i = 0; i < model.outputs().size(); ++i) {
    auto view = session.output(i);
    if (!view.ok()) {
      return view.status();
    }
    tell(model.outputs()[i].name, *view);
  }
  return {};
}

// The tensors of the reference run whose names are in `wanted`.
Result<std::map<std::string, Kept>> run_reference(const engine::Model& model, const std::string& path,
                                                  const std::vector<Array>& inputs,
                                                  const std::set<std::string>& wanted) {
  engine::Options options = model.options();
  options.precision = engine::Precision::kFp32;
  options.passes_off = {"all"};
  options.print_passes = false;
  auto reference = engine::Model::load(path, options);
  if (!reference.ok()) {
    return reference.status();
  }
  auto session = Session::create(*reference);
  if (!session.ok()) {
    return session.status();
  }
  if (Status status = bind_inputs(**reference, **session, inputs); !status.ok()) {
    return status;
  }
  std::map<std::string, Kept> kept;
  const auto keep = [&](const std::string& name, const engine::TensorView& tensor) {
    if (tensor.data != nullptr && wanted.count(name) != 0) {
      kept[name] = {{tensor.dims.begin(), tensor.dims.end()}, engine::to_doubles(tensor)};
    }
  };
  Status status = (*session)->run([&](const StepView& step) {
    for (const StepView::Result& result : step.results) {
      keep(std::string(result.name), result.tensor);
    }
  });
  if (status.ok()) {
    status = for_outputs(**reference, **session, keep);
  }
  return status.ok() ? Result<std::map<std::string, Kept>>(std::move(kept)) : status;
}

}  // namespace

double relative_error(std::span<const double> ours, std::span<const double> reference) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (ours.size() != reference.size()) {
    return kInfinite;
  }
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double a = ours[i], b = reference[i];
    if (std::isfinite(a) && std::isfinite(b)) {
      difference += (a - b) * (a - b);
      norm += b * b;
    } else if (!(a == b || (std::isnan(a) && std::isnan(b)))) {
      return kInfinite;
    }
  }
  return difference == 0 ? 0 : norm == 0 ? kInfinite : std::sqrt(difference / norm);
}

Status bind_inputs(const engine::Model& model, Session& session, const std::vector<Array>& inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (Status status =
            session.set_input(model.inputs()[i].name, inputs[i].dtype, inputs[i].dims, inputs[i].data.data());
        !status.ok()) {
      return status;
    }
  }
  return {};
}

Result<CheckResult> check_against_reference(const engine::Model& model, Session& session, const std::string& path,
                                            const std::vector<Array>& inputs, double tolerance, Progress& progress) {
  progress.show("running the optimised model");
  std::set<std::string> wanted;
  Status status = session.run([&](const StepView& step) {
    for (const StepView::Result& result : step.results) {
      wanted.emplace(result.name);
    }
  });
  if (!status.ok()) {
    return status;
  }
  for (const engine::TensorSpec& spec : model.outputs()) {
    wanted.insert(spec.name);
  }
  wanted.erase("");
  progress.show("running the reference");
  auto reference = run_reference(model, path, inputs, wanted);
  if (!reference.ok()) {
    return reference.status();
  }
  progress.show("comparing");
  Comparison comparison(*reference, tolerance);
  status = session.run([&](const StepView& step) {
    for (const StepView::Result& result : step.results) {
      comparison.add(std::string(result.name), result.tensor, &step);
    }
  });
  if (status.ok()) {
    status = for_outputs(model, session, [&](const std::string& name, const engine::TensorView& tensor) {
      comparison.add(name, tensor, nullptr);
    });
  }
  progress.clear();
  return status.ok() ? Result<CheckResult>(comparison.take()) : status;
}

}  // namespace sluice::cli
