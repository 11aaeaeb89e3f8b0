#include "outputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "../output.h"
#include "../suggest.h"
#include "npy.h"

namespace sluice::cli {
namespace {

constexpr std::size_t kFirst = 5;

struct Summary {
  double min, mean, max;  // NaN where there is no element
  std::vector<double> first;
};

Summary summarize(const engine::TensorView& view) {
  const std::vector<double> values = engine::to_doubles(view);
  Summary summary;
  summary.min = summary.mean = summary.max = std::numeric_limits<double>::quiet_NaN();
  if (!values.empty()) {
    summary.min = *std::min_element(values.begin(), values.end());
    summary.max = *std::max_element(values.begin(), values.end());
    summary.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }
  summary.first.assign(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(std::min(kFirst, values.size())));
  return summary;
}

engine::Dims dims_of(const engine::TensorView& view) { return {view.dims.begin(), view.dims.end()}; }

}  // namespace

Result<std::vector<NamedView>> all_outputs(const engine::Model& model, const engine::Session& session) {
  std::vector<NamedView> outputs;
  for (const engine::TensorSpec& spec : model.outputs()) {
    auto view = session.output(outputs.size());
    if (!view.ok()) {
      return view.status();
    }
    outputs.push_back({spec.name, *view});
  }
  return outputs;
}

std::string outputs_table(const std::vector<NamedView>& outputs) {
  using Align = Table::Align;
  Table table({{"OUTPUT", Align::kLeft},
               {"TYPE", Align::kLeft},
               {"SHAPE", Align::kLeft},
               {"MIN", Align::kRight},
               {"MEAN", Align::kRight},
               {"MAX", Align::kRight},
               {"FIRST", Align::kLeft}});
  for (const NamedView& output : outputs) {
    const Summary summary = summarize(output.view);
    const auto number = [](double value) { return fmt::format("{:.5g}", value); };
    std::vector<std::string> first;
    std::transform(summary.first.begin(), summary.first.end(), std::back_inserter(first), number);
    table.add({output.name, engine::dtype_name(output.view.dtype), shape_text(dims_of(output.view)),
               number(summary.min), number(summary.mean), number(summary.max),
               fmt::format("{}", fmt::join(first, " "))});
  }
  return table.text();
}

nlohmann::json outputs_json(const std::vector<NamedView>& outputs) {
  nlohmann::json list = nlohmann::json::array();
  for (const NamedView& output : outputs) {
    const Summary summary = summarize(output.view);
    list.push_back({{"name", output.name},
                    {"dtype", engine::dtype_name(output.view.dtype)},
                    {"shape", dims_of(output.view)},
                    {"min", summary.min},
                    {"mean", summary.mean},
                    {"max", summary.max},
                    {"first", summary.first}});
  }
  return list;
}

Status write_outputs(const std::vector<NamedView>& outputs, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const NamedView* chosen = nullptr;
    std::string path = file;
    std::vector<std::string> names;
    for (const NamedView& output : outputs) {
      names.push_back(output.name);
      if (file.starts_with(output.name + "=") && (chosen == nullptr || output.name.size() > chosen->name.size())) {
        chosen = &output;
        path = file.substr(output.name.size() + 1);
      }
    }
    if (chosen == nullptr && file.find('=') == std::string::npos && outputs.size() == 1) {
      chosen = &outputs[0];
    }
    if (chosen == nullptr) {
      const std::string name = file.substr(0, file.find('='));
      return Status::error(Code::kInvalidArgument, "the model has no output '%.60s'%s", name.c_str(),
                           did_you_mean(name, names).c_str());
    }
    if (Status status = write_npy_file(path, chosen->view); !status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace sluice::cli
