#include "profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>
#include <vector>

#include "arrays.h"
#include "sluice/base/clock.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: #8884; --bar: #3b7dd8; }}
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }}
h1 {{ font-size: 1.3rem; margin-bottom: .2rem; }}
h2 {{ font-size: 1.05rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: .15rem .5rem; border-bottom: 1px solid var(--line); vertical-align: top; }}
td.n, th.n {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
td.bar {{ width: 28%; }}
.bar div {{ background: var(--bar); height: .9rem; margin-top: .25rem; border-radius: 2px; min-width: 1px; }}
.name {{ overflow-wrap: anywhere; opacity: .75; }}
</style></head><body>
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : std::string(1, c);
  }
  return out;
}

std::string bar(double share, double widest) {
  return fmt::format(R"(<td class="bar"><div style="width:{:.1f}%"></div></td>)",
                     widest > 0 ? 100 * share / widest : 0.0);
}

std::string shapes(const json& outputs) {
  std::string text;
  for (const json& output : outputs) {
    text += (text.empty() ? "" : ", ") + output["dtype"].get<std::string>() + " " +
            shape_text(output["shape"].get<engine::Dims>());
  }
  return text;
}

// Time by kind of operator and kernel, most first.
std::string totals(const json& profile) {
  struct Total {
    std::size_t steps = 0;
    double us = 0;
  };
  std::map<std::pair<std::string, std::string>, Total> by_kind;
  for (const json& step : profile["steps"]) {
    Total& total = by_kind[{step["op"], step["kernel"]}];
    ++total.steps;
    total.us += step["mean_us"].get<double>();
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Total>> sorted(by_kind.begin(), by_kind.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  std::string text =
      "<h2>By operator</h2>\n<table><tr><th>Operator</th><th>Kernel</th><th class=\"n\">Steps</th><th "
      "class=\"n\">us</th>"
      "<th class=\"n\">Share</th><th></th></tr>\n";
  const double all = profile["latency_us"].get<double>();
  const double widest = sorted.empty() ? 0 : sorted[0].second.us;
  for (const auto& [kind, total] : sorted) {
    text += fmt::format(
        "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{:.1f}</td><td class=\"n\">{:.1f} "
        "%</td>{}</tr>\n",
        escaped(kind.first), escaped(kind.second), total.steps, total.us, all > 0 ? 100 * total.us / all : 0.0,
        bar(total.us, widest));
  }
  return text + "</table>\n";
}

}  // namespace

Result<json> measure_profile(engine::Session& session, double seconds, Progress& progress) {
  std::vector<std::uint64_t> ns;
  json steps = json::array();
  const std::uint64_t start = now_ns();
  std::size_t runs = 0;
  for (bool warm = false; runs < 10 || static_cast<double>(now_ns() - start) < seconds * 1e9; warm = true) {
    const Status status = session.run([&](const engine::StepView& step) {
      if (!warm) {
        json outputs = json::array();
        for (const auto& result : step.results) {
          outputs.push_back({{"dtype", engine::dtype_name(result.tensor.dtype)},
                             {"shape", engine::Dims(result.tensor.dims.begin(), result.tensor.dims.end())}});
        }
        steps.push_back({{"index", step.index},
                         {"name", step.name},
                         {"op", step.op},
                         {"kernel", step.implementation},
                         {"outputs", std::move(outputs)}});
        ns.push_back(0);
      } else {
        ns[step.index] += step.ns;
      }
    });
    if (!status.ok()) {
      return status;
    }
    runs += warm;
    progress.show(fmt::format("profiling: {} runs", runs));
  }
  progress.clear();
  double sum_us = 0;
  for (std::size_t i = 0; i < ns.size(); ++i) {
    steps[i]["mean_us"] = static_cast<double>(ns[i]) / 1e3 / static_cast<double>(runs);
    sum_us += steps[i]["mean_us"].get<double>();
  }
  for (json& step : steps) {
    step["share_ratio"] = sum_us > 0 ? step["mean_us"].get<double>() / sum_us : 0.0;
  }
  return json{{"runs", runs}, {"latency_us", sum_us}, {"steps", std::move(steps)}};
}

std::string profile_html(const json& profile) {
  const std::string model = escaped(profile["model"].get<std::string>());
  std::string text = fmt::format(kHead, fmt::arg("title", "Profile of " + model));
  text +=
      fmt::format("<h1>{}</h1>\n<p>{} steps, {:.1f} us; device {}, {}, batch {}, {} threads; mean of {} runs.</p>\n",
                  model, profile["steps"].size(), profile["latency_us"].get<double>(), escaped(profile["device"]),
                  escaped(profile["precision"]), profile["batch"].get<std::int64_t>(), profile["threads"].get<int>(),
                  profile["runs"].get<std::size_t>());
  text += totals(profile);
  text +=
      "<h2>Step by step</h2>\n<table><tr><th class=\"n\">#</th><th>Operator</th><th>Kernel</th><th>Result</th>"
      "<th class=\"n\">us</th><th class=\"n\">Share</th><th></th></tr>\n";
  double widest = 0;
  for (const json& step : profile["steps"]) {
    widest = std::max(widest, step["share_ratio"].get<double>());
  }
  for (const json& step : profile["steps"]) {
    const double share = step["share_ratio"].get<double>();
    text += fmt::format(
        "<tr><td class=\"n\">{}</td><td>{}<br><span class=\"name\">{}</span></td><td>{}</td><td>{}</td>"
        "<td class=\"n\">{:.1f}</td><td class=\"n\">{:.1f} %</td>{}</tr>\n",
        step["index"].get<std::size_t>(), escaped(step["op"]), escaped(step["name"]), escaped(step["kernel"]),
        shapes(step["outputs"]), step["mean_us"].get<double>(), 100 * share, bar(share, widest));
  }
  return text + "</table>\n</body></html>\n";
}

Result<std::string> write_profile(const json& profile, const std::string& path) {
  const std::string beside = (path.ends_with(".html") ? path.substr(0, path.size() - 5) : path) + ".json";
  const auto write = [](const std::string& to, const std::string& text) {
    std::ofstream file(to, std::ios::binary);
    file << text;
    file.close();
    return file ? Status()
                : Status::error(Code::kInvalidArgument, "cannot write %s: %s", to.c_str(), std::strerror(errno));
  };
  if (Status status = write(path, profile_html(profile)); !status.ok()) {
    return status;
  }
  if (Status status = write(beside, profile.dump(2, ' ', false, json::error_handler_t::replace) + "\n"); !status.ok()) {
    return status;
  }
  return beside;
}

}  // namespace sluice::cli
