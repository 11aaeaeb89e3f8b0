#include "memory_report.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "real.h"

namespace sluice::shim {
namespace {

// As base/units prints sizes, without a C++ runtime.
struct Size {
  explicit Size(std::uint64_t bytes) {
    static const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    int unit = 0;
    for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  }
  char text[32];
};

// Whole lines, printed together.
class Lines {
 public:
  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    constexpr std::size_t kHead = 8;
    if (used_ + kHead + 2 > sizeof text_) return;
    std::memcpy(text_ + used_, "sluice: ", kHead);
    std::va_list args;
    va_start(args, format);
    const int line = std::vsnprintf(text_ + used_ + kHead, sizeof text_ - used_ - kHead - 1, format, args);
    va_end(args);
    if (line < 0 || used_ + kHead + static_cast<std::size_t>(line) + 1 >= sizeof text_) return;  // no room: left out
    used_ += kHead + static_cast<std::size_t>(line);
    text_[used_++] = '\n';
  }
  void print() const {
    if (write(STDERR_FILENO, text_, used_) < 0) return;  // whoever closed it does not want it
  }

 private:
  char text_[4096];
  std::size_t used_ = 0;
};

bool quiet() {
  const char* level = std::getenv("SLUICE_LOG");
  return level != nullptr && std::strcmp(level, "error") == 0;
}

void add_job(Lines* lines, const board::Job& job, std::uint64_t held, bool own) {
  const std::uint64_t limit = job.memory_limit_bytes.load();
  char of_limit[80] = "";
  if (limit != 0) std::snprintf(of_limit, sizeof of_limit, " of its limit of %s", Size(limit).text);
  lines->add("  job %llu (%.60s)%s holds %s%s", static_cast<unsigned long long>(job.id.load()), job.name,
             own ? ", this one," : "", Size(held).text, of_limit);
}

}  // namespace

void report_memory(Session* session, std::uint64_t bytes, Shortage shortage) {
  board::Board* board = session->board;
  board::Job& own = board->jobs[session->job];
  if (own.memory_told.exchange(1) != 0 || quiet()) return;
  const std::uint64_t limit = own.memory_limit_bytes.load();
  Lines lines;
  if (shortage == Shortage::kLimit) {
    lines.add("out of memory: job %llu (%.60s) asked for %s more, beyond its limit of %s on %s",
              static_cast<unsigned long long>(own.id.load()), own.name, Size(bytes).text, Size(limit).text,
              board->device);
  } else {
    lines.add("out of memory: job %llu (%.60s) asked for %s more, which %s has not",
              static_cast<unsigned long long>(own.id.load()), own.name, Size(bytes).text, board->device);
  }
  std::uint64_t all = 0;
  for (int i = 0; i < board::kJobs; ++i) {
    const board::Job& job = board->jobs[i];
    if (job.owner.load() == 0 || job.live.load() == 0) continue;
    const std::uint64_t held = board::memory_of(board, i);
    all += held;
    if (i == session->job || held != 0) add_job(&lines, job, held, i == session->job);
  }
  std::size_t free = 0, total = 0;
  if (real.mem_get_info != nullptr && real.mem_get_info(&free, &total) == CUDA_SUCCESS) {
    const std::uint64_t used = total - free;
    lines.add("  contexts, and programs that Sluice does not manage, hold %s; %s of %s are free",
              Size(used > all ? used - all : 0).text, Size(free).text, Size(total).text);
  }
  if (shortage == Shortage::kLimit) {
    lines.add("  raise its --memory, or let it use less (smaller batches, fewer processes); docs/troubleshooting.md");
  } else {
    lines.add(
        "  wait for a job to end, let this one use less, or start jobs with --memory SIZE --wait, which start when "
        "theirs is free; docs/troubleshooting.md");
  }
  lines.print();
}

}  // namespace sluice::shim
