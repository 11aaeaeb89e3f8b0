#include "top_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "job_request.h"
#include "output.h"
#include "status_text.h"
#include "summary.h"

namespace sluice::cli {
namespace {

using nlohmann::json;
using namespace shown;
using Look = TopLine::Look;

constexpr char kKeys[] = "arrows select   h n l priority   + - by 10   q quit";
constexpr int kNameColumns = 18;
constexpr int kWideNameColumns = 30;
constexpr int kWide = 110;  // columns from which on there is room for more

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

// The first `columns` characters; with what is missing filled up by blanks if `pad`.
std::string fitted(const std::string& text, int columns, bool pad) {
  const auto room = static_cast<std::size_t>(std::max(columns, 0));
  std::string out;
  std::size_t used = 0;
  for (const char c : text) {
    if (begins_character(c) && used++ == room) return out;
    out += c;
  }
  if (pad && used < room) out.append(room - used, ' ');
  return out;
}

std::string bar(const json& ratio, int columns) {
  if (!ratio.is_number()) return std::string(static_cast<std::size_t>(columns), '.');
  const auto full = static_cast<std::size_t>(std::lround(std::clamp(ratio.get<double>(), 0.0, 1.0) * columns));
  return std::string(full, '#') + std::string(static_cast<std::size_t>(columns) - full, '.');
}

json ratio_of(const json& part, const json& whole_of) {
  if (!part.is_number() || !whole_of.is_number() || whole_of <= 0) return {};
  return part.get<double>() / whole_of.get<double>();
}

std::string heat_and_power(const json& device) {
  std::string result;
  if (const json& heat = at(device, "temperature_c"); heat.is_number()) result += heat.dump() + " C";
  const json &power = at(device, "power_w"), &limit = at(device, "power_limit_w");
  if (!power.is_number()) return result;
  result += fmt::format("{}{:.0f}", result.empty() ? "" : "  ", power.get<double>());
  if (limit.is_number()) result += fmt::format("/{:.0f}", limit.get<double>());
  return result + " W";
}

void add_card(const json& device, int columns, std::vector<TopLine>* lines) {
  const bool wide = columns >= kWide;
  const int width = wide ? 20 : 8;
  std::string name = text(at(device, "name"));
  if (name.starts_with("NVIDIA ")) name.erase(0, 7);
  const json memory = ratio_of(at(device, "memory_used_bytes"), at(device, "memory_total_bytes"));
  lines->push_back({fmt::format("{:>3} {} {} {:>5}  {} {:>9}  {}", whole(at(device, "index")),
                                fitted(printable(name), wide ? kWideNameColumns : kNameColumns, true),
                                bar(at(device, "utilization_ratio"), width), percent(at(device, "utilization_ratio")),
                                bar(memory, width), bytes(at(device, "memory_used_bytes")), heat_and_power(device)),
                    Look::kPlain});
  const std::string more = printable(remarks(device));
  if (more.empty() || more == "simulated") return;
  const bool is_bad = at(device, "lost") == true || at(device, "out_of_use").is_string();
  lines->push_back({"    " + more, is_bad ? Look::kBad : Look::kPlain});
}

std::string job_line(const json& status, const json& job, bool wide) {
  const json &priority = at(job, "priority"), &per_second = at(job, "launches_per_s");
  const std::string rate =
      per_second.is_number() ? grouped(static_cast<std::uint64_t>(per_second.get<double>())) : kUnknown;
  std::string line =
      fmt::format("{:>5} {} {} {} {:>5} {:>5} {:>10} {:>9} ", whole(at(job, "id")),
                  fitted(priority.is_number_integer() ? priority_name(priority.get<int>()) : kUnknown, 8, true),
                  fitted(state(job), 13, true), fitted(gpus(status, job), 5, true), percent(at(job, "gpu_share_ratio")),
                  percent(at(job, "held_ratio")), rate, bytes(at(job, "memory_allocated_bytes")));
  if (wide) {
    line += fmt::format("{:>9} {:>9} {:>5} {} ", bytes(at(job, "memory_limit_bytes")), duration(at(job, "started_us")),
                        whole(at(job, "share")), fitted(printable(text(at(job, "user"))), 10, true));
  }
  return line + printable(text(at(job, "name")));
}

std::string job_heading(bool wide) {
  std::string line = fmt::format("{:>5} {:<8} {:<13} {:<5} {:>5} {:>5} {:>10} {:>9} ", "JOB", "PRIORITY", "STATE",
                                 "GPU", "BUSY", "HELD", "LAUNCHES/S", "MEMORY");
  if (wide) line += fmt::format("{:>9} {:>9} {:>5} {:<10} ", "OF", "AGE", "SHARE", "USER");
  return line + "NAME";
}

std::vector<const json*> ordered(const json& status) {
  std::vector<const json*> jobs;
  for (const json& job : list_at(status, "jobs")) {
    if (at(job, "id").is_number_unsigned()) jobs.push_back(&job);
  }
  std::sort(jobs.begin(), jobs.end(), [](const json* left, const json* right) {
    const json &a = at(*left, "priority"), &b = at(*right, "priority");
    if (a.is_number() && b.is_number() && a != b) return a > b;
    return at(*left, "id") < at(*right, "id");
  });
  return jobs;
}

}  // namespace

std::vector<std::uint64_t> top_order(const json& status) {
  std::vector<std::uint64_t> ids;
  for (const json* job : ordered(status)) ids.push_back(at(*job, "id").get<std::uint64_t>());
  return ids;
}

void move_selection(const json& status, int by, TopState* state) {
  const std::vector<std::uint64_t> ids = top_order(status);
  if (ids.empty()) {
    state->selected.reset();
    return;
  }
  const auto now = state->selected ? std::find(ids.begin(), ids.end(), *state->selected) : ids.end();
  const auto last = static_cast<std::ptrdiff_t>(ids.size()) - 1;
  const std::ptrdiff_t to =
      now == ids.end() ? 0 : std::clamp<std::ptrdiff_t>(now - ids.begin() + by, std::ptrdiff_t{0}, last);
  state->selected = ids[static_cast<std::size_t>(to)];
}

std::vector<TopLine> top_lines(const json& status, const TopState& state, int columns, int rows) {
  const bool wide = columns >= kWide;
  const std::vector<const json*> jobs = ordered(status);
  const json& devices = list_at(status, "devices");
  std::vector<TopLine> lines;
  const bool simulated =
      std::any_of(devices.begin(), devices.end(), [](const json& device) { return at(device, "simulated") == true; });
  lines.push_back(
      {fmt::format("{:>3} {} {} {:>5}  {} {:>9}  {}", "GPU",
                   fitted("NAME", wide ? kWideNameColumns : kNameColumns, true), fitted("BUSY", wide ? 20 : 8, true),
                   "", fitted("MEMORY", wide ? 20 : 8, true), "USED", simulated ? "(simulated)" : ""),
       Look::kHeading});
  for (const json& device : devices) add_card(device, columns, &lines);
  if (devices.empty()) lines.push_back({"    no GPU is in use", Look::kPlain});
  // Jobs come first in what little room there may be: half of it, if they need that.
  const int for_jobs = std::min(static_cast<int>(jobs.size()), std::max(1, rows / 2)) + 3;
  if (static_cast<int>(lines.size()) > std::max(1, rows - for_jobs))
    lines.resize(static_cast<std::size_t>(std::max(1, rows - for_jobs)));

  lines.push_back({"", Look::kPlain});
  lines.push_back({job_heading(wide), Look::kHeading});
  const int room = rows - static_cast<int>(lines.size()) - 1;
  int first = 0, selected = -1;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (state.selected && at(*jobs[i], "id") == *state.selected) selected = static_cast<int>(i);
  }
  if (selected >= room) first = selected - room + 1;
  for (int i = first; i < static_cast<int>(jobs.size()) && i < first + room; ++i)
    lines.push_back(
        {job_line(status, *jobs[static_cast<std::size_t>(i)], wide), i == selected ? Look::kSelected : Look::kPlain});
  if (jobs.empty() && room > 0) lines.push_back({"      no jobs", Look::kPlain});
  const auto unmanaged = list_at(status, "unmanaged").size();
  while (static_cast<int>(lines.size()) < rows - 1) lines.push_back({"", Look::kPlain});
  if (unmanaged > 0 && rows >= 4 && lines[static_cast<std::size_t>(rows) - 2].text.empty()) {
    lines[static_cast<std::size_t>(rows) - 2] = {fmt::format("{} {} not managed by Sluice: see sluice ps", unmanaged,
                                                             unmanaged == 1 ? "process is" : "processes are"),
                                                 Look::kPlain};
  }
  std::string last = state.message.empty() ? kKeys : printable(state.message);
  if (static_cast<int>(jobs.size()) > room) last += fmt::format("   {} jobs", jobs.size());
  lines.resize(static_cast<std::size_t>(std::max(rows - 1, 0)));
  lines.push_back({last, Look::kHeading});
  for (TopLine& line : lines) line.text = fitted(line.text, columns, line.look == Look::kSelected);
  if (static_cast<int>(lines.size()) > rows) lines.resize(static_cast<std::size_t>(std::max(rows, 0)));
  return lines;
}

}  // namespace sluice::cli
