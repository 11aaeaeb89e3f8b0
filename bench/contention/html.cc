#include "html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>

#include "best.h"

namespace sluice::bench {
namespace {

constexpr char kStyle[] = R"css(
:root { --ink: #1c2430; --soft: #5b6675; --line: #dfe3e8; --back: #f6f7f9; --card: #ffffff; --alone: #8a94a3;
  --time_slicing: #d9722e; --mps: #8b5fbf; --sluice: #0b8a83; --sluice_mps: #2f6db5; --held: #e6b8a2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa5b4; --line: #323a45; --back: #14181e;
  --card: #1c222a; --alone: #9aa5b4; --time_slicing: #ee8b4a; --mps: #b08ae0; --sluice: #2cc0b6; --sluice_mps: #6ea8e6;
  --held: #7a4a35; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 24px 48px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 0 0 4px; }
p { margin: 4px 0; } .soft { color: var(--soft); }
.badge { display: inline-block; background: var(--time_slicing); color: #fff; border-radius: 4px; padding: 0 8px;
  font-size: 13px; font-weight: 600; vertical-align: 3px; margin-left: 8px; }
.verdict { font-size: 17px; margin: 16px 0 20px; border-left: 4px solid var(--sluice); padding-left: 14px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 18px 20px;
  margin-top: 18px; }
table { border-collapse: collapse; width: 100%; margin-top: 8px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; color: var(--soft); font-size: 13px; }
th.l, td.l { text-align: left; } tr.first td { border-top: 2px solid var(--line); } tr:last-child td { border-bottom: 0; }
.chip { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 7px; }
.legend span { margin-right: 18px; font-size: 13px; color: var(--soft); }
svg { width: 100%; height: auto; display: block; margin-top: 8px; }
svg text { font: 12px system-ui, "Segoe UI", sans-serif; fill: var(--soft); } svg .name { fill: var(--ink); font-size: 13px; }
svg .grid { stroke: var(--line); stroke-width: 1; } svg .curve { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
)css";

constexpr double kWidth = 1040;
constexpr double kLeft = 64;
constexpr double kRight = 20;

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string us_label(double us) {
  if (us < 1e3) return fmt::format("{:g} us", us);
  if (us < 1e6) return fmt::format("{:g} ms", us / 1e3);
  return fmt::format("{:g} s", us / 1e6);
}

std::string measured_us(const std::optional<double>& us) {
  if (!us) return "n/a";
  if (*us < 1e3) return fmt::format("{:.0f} us", *us);
  return fmt::format("{:.2f} ms", *us / 1e3);
}

// Positions on a logarithmic axis of time, with marks at 1, 2 and 5 times the powers of ten, or more where it is short.
class LogAxis {
 public:
  LogAxis(double low, double high) : low_(std::log10(low * 0.9)), high_(std::log10(high * 1.1)) {}
  double x(double us) const {
    double part = (std::log10(std::max(us, 1e-3)) - low_) / (high_ - low_);
    return kLeft + std::clamp(part, 0.0, 1.0) * (kWidth - kLeft - kRight);
  }
  std::vector<double> marks() const {
    std::vector<double> result = marks_at({1, 2, 5});
    return result.size() >= 3 ? result : marks_at({1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9});
  }

 private:
  std::vector<double> marks_at(std::initializer_list<double> digits) const {
    std::vector<double> result;
    for (int power = static_cast<int>(std::floor(low_)); power <= static_cast<int>(std::ceil(high_)); ++power) {
      for (double digit : digits) {
        double us = digit * std::pow(10.0, power);
        if (std::log10(us) >= low_ && std::log10(us) <= high_) result.push_back(us);
      }
    }
    return result;
  }

  double low_, high_;
};

// The part of requests slower than x: its axis is logarithmic, so that the tail is seen.
class TailAxis {
 public:
  static constexpr double kTop = 12, kHeight = 230;
  explicit TailAxis(std::size_t samples) : decades_(std::clamp(std::log10(static_cast<double>(samples)), 2.0, 5.0)) {}
  double y(double part_slower) const {
    double value = -std::log10(std::max(part_slower, 1e-9)) / decades_;
    return kTop + std::clamp(value, 0.0, 1.0) * kHeight;
  }
  int whole_decades() const { return static_cast<int>(decades_); }

 private:
  double decades_;
};

std::string curve(const std::vector<double>& sorted, const LogAxis& x, const TailAxis& y) {
  std::string points;
  auto n = static_cast<double>(sorted.size());
  double last_x = -1, last_y = -1;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    double px = x.x(sorted[i]);
    double py = y.y(1 - static_cast<double>(i) / n);
    if (i + 1 < sorted.size() && std::abs(px - last_x) + std::abs(py - last_y) < 0.7) continue;  // not visible
    fmt::format_to(std::back_inserter(points), "{:.1f},{:.1f} ", px, py);
    last_x = px;
    last_y = py;
  }
  return points;
}

std::string distribution(const Report& report, std::size_t job) {
  double low = 1e300, high = 0;
  std::size_t samples = 0;
  for (const SetupResult& setup : report.setups) {
    const auto& values = setup.jobs[job].latencies_us;
    if (values.empty()) continue;
    low = std::min(low, values.front());
    high = std::max(high, values.back());
    samples = std::max(samples, values.size());
  }
  if (samples == 0) return "<p class=\"soft\">This job reports no latencies.</p>";
  LogAxis x(std::max(low, 0.1), std::max(high, 1.0));
  TailAxis y(samples);
  double bottom = TailAxis::kTop + TailAxis::kHeight;
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">", kWidth, bottom + 40);
  for (int d = 0; d <= y.whole_decades(); ++d) {
    double part = std::pow(10.0, -d);
    fmt::format_to(std::back_inserter(svg),
                   "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
                   "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:g} %</text>",
                   kLeft, kWidth - kRight, y.y(part), kLeft - 8, y.y(part) + 4, part * 100);
  }
  for (double us : x.marks()) {
    fmt::format_to(std::back_inserter(svg),
                   "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>"
                   "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>",
                   x.x(us), TailAxis::kTop, bottom, bottom + 18, us_label(us));
  }
  fmt::format_to(std::back_inserter(svg), "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">time (logarithmic)</text>",
                 kWidth - kRight, bottom + 36);
  for (const SetupResult& setup : report.setups) {
    const JobResult& result = setup.jobs[job];
    if (result.latencies_us.empty()) continue;
    fmt::format_to(std::back_inserter(svg),
                   "<polyline class=\"curve\" stroke=\"var(--{})\" points=\"{}\"><title>{}: p50 {}, p99 {}</title>"
                   "</polyline>",
                   setup_name(setup.setup), curve(result.latencies_us, x, y), setup_title(setup.setup),
                   measured_us(result.p50_us), measured_us(result.p99_us));
  }
  return svg + "</svg>";
}

// A stretch of the timeline that shows several requests: around the median hold, as wide as twelve of them are apart.
std::pair<double, double> stretch(const Timeline& timeline) {
  const std::vector<Span>* high = timeline.jobs.empty() ? nullptr : &timeline.jobs.front();
  if (high == nullptr || high->size() < 2) return {0, timeline.length_us};
  double gap = (high->back().begin_us - high->front().begin_us) / static_cast<double>(high->size() - 1);
  double width = std::min(timeline.length_us, gap * 12);
  double begin = std::max(0.0, (*high)[high->size() / 2].begin_us - width / 2);
  return {std::min(begin, timeline.length_us - width), std::min(begin, timeline.length_us - width) + width};
}

std::string timeline_svg(const Report& report) {
  const Timeline& timeline = report.timeline;
  bool empty = std::all_of(timeline.jobs.begin(), timeline.jobs.end(), [](const auto& spans) { return spans.empty(); });
  if (empty) return "<p class=\"soft\">The board showed no work: the jobs did not run under Sluice.</p>";
  constexpr double kRow = 46, kBar = 26, kNames = 130;
  auto [begin, end] = stretch(timeline);
  double scale = (kWidth - kNames - kRight) / (end - begin);
  double height = kRow * static_cast<double>(timeline.jobs.size());
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">", kWidth, height + 40);
  double step = std::pow(10.0, std::floor(std::log10((end - begin) / 4)));
  if ((end - begin) / step > 20) step *= 5;
  if ((end - begin) / step > 10) step *= 2;
  for (double at = 0; at <= end - begin; at += step) {
    fmt::format_to(std::back_inserter(svg),
                   "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1}\"/>"
                   "<text x=\"{0:.1f}\" y=\"{2}\" text-anchor=\"middle\">{3}</text>",
                   kNames + at * scale, height, height + 18, us_label(at));
  }
  for (std::size_t i = 0; i < timeline.jobs.size(); ++i) {
    double top = kRow * static_cast<double>(i) + (kRow - kBar) / 2;
    fmt::format_to(std::back_inserter(svg), "<text class=\"name\" x=\"0\" y=\"{:.1f}\">{}</text>", top + kBar / 2 + 5,
                   escaped(report.setups.front().jobs[i].name));
    for (const Span& span : timeline.jobs[i]) {
      double from = std::max(span.begin_us, begin), to = std::min(span.end_us, end);
      if (to <= from) continue;
      bool held = span.state == JobState::kHeld;
      fmt::format_to(std::back_inserter(svg),
                     "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"var(--{})\">"
                     "<title>{} for {}</title></rect>",
                     kNames + (from - begin) * scale, held ? top + kBar / 3 : top, std::max((to - from) * scale, 0.6),
                     held ? kBar / 3 : kBar, held ? "held" : "sluice", held ? "held" : "holds the GPU",
                     measured_us(span.end_us - span.begin_us));
    }
  }
  return svg + "</svg>";
}

std::string legend(const Report& report) {
  std::string html = "<p class=\"legend\">";
  for (const SetupResult& setup : report.setups) {
    html += fmt::format("<span><i class=\"chip\" style=\"background:var(--{})\"></i>{}</span>", setup_name(setup.setup),
                        setup_title(setup.setup));
  }
  return html + "</p>";
}

std::string result_table(const Report& report) {
  std::string html =
      "<table><tr><th class=\"l\">setup</th><th class=\"l\">job</th><th>priority</th><th>p50</th><th>p99</th>"
      "<th>p99 / alone</th><th>95 % bounds</th><th>per second</th><th>kept</th><th>samples</th></tr>";
  for (const SetupResult& setup : report.setups) {
    bool first = true;
    for (const JobResult& job : setup.jobs) {
      fmt::format_to(std::back_inserter(html),
                     "<tr{}><td class=\"l\">{}</td><td class=\"l\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
                     "<td>{}</td><td>{:.1f}</td><td>{}</td><td>{}</td></tr>",
                     first ? " class=\"first\"" : "",
                     first ? fmt::format("<i class=\"chip\" style=\"background:var(--{})\"></i>{}",
                                         setup_name(setup.setup), setup_title(setup.setup))
                           : "",
                     escaped(job.name), job.priority, measured_us(job.p50_us), measured_us(job.p99_us),
                     job.p99_ratio ? fmt::format("{:.2f}", *job.p99_ratio) : "n/a",
                     job.p99_ratio_bounds
                         ? fmt::format("{:.2f} to {:.2f}", job.p99_ratio_bounds->low, job.p99_ratio_bounds->high)
                         : "n/a",
                     job.throughput_per_s, job.kept_ratio ? fmt::format("{:.0f} %", *job.kept_ratio * 100) : "n/a",
                     job.latencies_us.size());
      first = false;
    }
  }
  return html + "</table>";
}

}  // namespace

std::string to_html(const Report& report) {
  std::string html = fmt::format(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>Jobs sharing a GPU: {0}</title><style>{1}</style></head><body><main>"
      "<h1>Jobs sharing one GPU{2}</h1><p class=\"soft\">{3}; {4} of {5:.2g} s for each setup, interleaved</p>"
      "<p class=\"verdict\">{6}</p>",
      escaped(report.device), kStyle, report.simulated ? "<span class=\"badge\">simulated</span>" : "",
      escaped(device_title(report)), report.repeats == 1 ? "one run" : fmt::format("{} runs", report.repeats),
      report.seconds, escaped(verdict(report)));
  html +=
      "<section><h2>Result</h2>" + result_table(report) + "<p>" + escaped(best_sentence(report)) + "</p>" +
      "<p class=\"soft\">p99 / alone: bootstrap over requests. Kept: the job's throughput, divided by its throughput "
      "alone times the part of the GPU's time that the jobs of higher priority leave.</p></section>";
  for (std::size_t i = 0; i < report.setups.front().jobs.size(); ++i) {
    const JobResult& job = report.setups.front().jobs[i];
    html += fmt::format(
        "<section><h2>{} (priority {}): how many requests take longer</h2><p class=\"soft\"><code>{}</code></p>{}{}"
        "</section>",
        escaped(job.name), job.priority, escaped(report.commands[i]), legend(report), distribution(report, i));
  }
  if (report.find(Setup::kSluice) != nullptr) {
    html += fmt::format(
        "<section><h2>Who held the GPU under Sluice{}</h2><p class=\"legend\">"
        "<span><i class=\"chip\" style=\"background:var(--sluice)\"></i>has work on the GPU</span>"
        "<span><i class=\"chip\" style=\"background:var(--held)\"></i>held at its gate</span></p>{}"
        "<p class=\"soft\">A stretch of the first run, sampled from the board.</p></section>",
        report.simulated ? " (simulated)" : "", timeline_svg(report));
  }
  return html + "</main></body></html>\n";
}

}  // namespace sluice::bench
