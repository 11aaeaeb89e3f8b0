// What stages touch without having declared it: each runs on fenced copies of the buffers, several times, with all that
// it did not declare to read filled with different patterns. A result that depends on the pattern was read; a byte
// outside its writes that is not the pattern afterwards was written.
#include <algorithm>
#include <memory>

#include "impl.h"

namespace sluice::graph {
namespace {

constexpr std::size_t kFence = 4096;
constexpr std::uint8_t kPatterns[] = {0x00, 0x3f};  // as floats 0 and 0.75: neither is lost in a sum
using Image = std::vector<std::uint8_t>;            // a buffer with its two fences
using Images = std::vector<Image>;

struct Copies {
  explicit Copies(const DriverCalls* driver) : calls(driver) {}
  ~Copies() {
    for (const CUdeviceptr block : device) calls->free(block);
    for (void* block : host) calls->host_free(block);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  const DriverCalls* calls;
  std::vector<CUdeviceptr> device;
  std::vector<void*> host;
  AddressList where;
};

struct Touched {  // bytes of one buffer's image that a stage wrote undeclared
  std::uint32_t stage, buffer;
  std::size_t first, last;
};

}  // namespace

class Checker {
 public:
  explicit Checker(Pipeline::Impl* impl) : impl_(*impl), calls_(*impl->calls), copies_(impl->calls) {}

  Result<std::vector<Finding>> run() {
    if (Status s = copy_buffers(); !s.ok()) return s;
    for (const std::uint32_t stage : impl_.order) {
      if (Status s = check(stage); !s.ok()) return s;
    }
    return std::move(findings_);
  }

 private:
  Status copy_buffers() {
    for (const BufferInfo& buffer : impl_.buffers) {
      const std::size_t bytes = buffer.bytes + 2 * kFence;
      unsigned type = CU_MEMORYTYPE_DEVICE;
      if (!buffer.temporary) calls_.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, buffer.address);
      CUdeviceptr block = 0;
      if (type == CU_MEMORYTYPE_HOST) {  // host functions read it
        void* pointer = nullptr;
        if (calls_.host_allocate(&pointer, bytes, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) return no_memory(buffer);
        copies_.host.push_back(pointer);
        block = reinterpret_cast<CUdeviceptr>(pointer);
      } else {
        if (calls_.allocate(&block, bytes) != CUDA_SUCCESS) return no_memory(buffer);
        copies_.device.push_back(block);
      }
      copies_.where.list.push_back(block + kFence);
      Image& image = truth_.emplace_back(bytes, kPatterns[0]);
      if (buffer.temporary) continue;
      const CUresult e = calls_.copy_out(image.data() + kFence, buffer.address, buffer.bytes);
      if (e != CUDA_SUCCESS)
        return Status::error(Code::kInternal, "reading buffer '%s': %s", buffer.name.c_str(), calls_.name_of(e));
    }
    return {};
  }
  static Status no_memory(const BufferInfo& buffer) {
    return Status::error(Code::kResourceExhausted, "no memory for a copy of buffer '%s' of %llu bytes",
                         buffer.name.c_str(), static_cast<unsigned long long>(buffer.bytes));
  }

  // What the buffers hold after the stage, if they hold `before`.
  Result<Images> run_on(std::uint32_t stage, const Images& before) {
    for (std::size_t b = 0; b < before.size(); ++b) {
      if (calls_.copy_in(copies_.where.list[b] - kFence, before[b].data(), before[b].size()) != CUDA_SUCCESS)
        return Status::error(Code::kInternal, "stage '%s': its buffers cannot be filled", name(stage));
    }
    calls_.synchronize_context();
    if (Status s = impl_.run_stage(impl_.stages[stage], impl_.own_stream, copies_.where); !s.ok()) return s;
    if (const CUresult e = calls_.stream_synchronize(impl_.own_stream); e != CUDA_SUCCESS)
      return Status::error(Code::kInternal, "stage '%s' fails where what it did not declare is poisoned: %s",
                           name(stage), calls_.name_of(e));
    Images after;
    for (std::size_t b = 0; b < before.size(); ++b) {
      Image& image = after.emplace_back(before[b].size());
      if (calls_.copy_out(image.data(), copies_.where.list[b] - kFence, image.size()) != CUDA_SUCCESS)
        return Status::error(Code::kInternal, "stage '%s': its buffers cannot be read", name(stage));
    }
    return after;
  }

  // One flag a byte of the buffer's image: what the stage declares to read, or to write.
  std::vector<bool> declared(std::uint32_t stage, std::uint32_t buffer, bool write) const {
    std::vector<bool> result(truth_[buffer].size());
    const StageInfo& info = impl_.stages[stage];
    for (std::uint32_t i = 0; i < info.ranges; ++i) {
      const RangeAccess& range = impl_.ranges[info.first_range + i];
      if (range.buffer != buffer || !(write ? range.writes : range.reads)) continue;
      std::fill(result.begin() + static_cast<std::ptrdiff_t>(range.begin + kFence),
                result.begin() + static_cast<std::ptrdiff_t>(range.end + kFence), true);
    }
    return result;
  }

  Status check(std::uint32_t stage) {
    Result<Images> real = run_on(stage, truth_);
    if (!real.ok()) return real.status();
    const Kind kind = impl_.stages[stage].kind;
    if (kind != Kind::kCopy && kind != Kind::kMemset) {  // the driver does what those declare
      const std::size_t n = truth_.size();
      Images before[2] = {truth_, truth_};
      std::vector<std::vector<bool>> read(n), written(n);
      for (std::uint32_t b = 0; b < n; ++b) {
        read[b] = declared(stage, b, false);
        written[b] = declared(stage, b, true);
        for (std::size_t i = 0; i < truth_[b].size(); ++i) {
          if (read[b][i]) continue;
          before[0][b][i] = kPatterns[0];
          before[1][b][i] = kPatterns[1];
        }
      }
      Result<Images> first = run_on(stage, before[0]), again = run_on(stage, before[0]),
                     other = run_on(stage, before[1]);
      for (const Result<Images>* r : {&first, &again, &other}) {
        if (!r->ok()) return r->status();
      }
      varies_.assign(n, {});
      bool reads = false;
      for (std::uint32_t b = 0; b < n; ++b) {
        varies_[b].resize(truth_[b].size());
        std::size_t first_written = truth_[b].size(), last_written = 0;
        for (std::size_t i = 0; i < truth_[b].size(); ++i) {
          const std::uint8_t x = (*first)[b][i], y = (*other)[b][i];
          varies_[b][i] = x != (*again)[b][i];
          const bool kept = x == before[0][b][i] && y == before[1][b][i];
          if (kept) continue;
          if (!written[b][i]) {
            first_written = std::min(first_written, i);
            last_written = i;
          } else if (x != y && !varies_[b][i]) {
            reads = true;
          }
        }
        if (last_written >= first_written) report_write(stage, b, first_written, last_written);
      }
      if (reads) {
        if (Status s = locate_reads(stage, *real, read); !s.ok()) return s;
      }
    }
    truth_ = std::move(*real);
    for (Image& image : truth_) {
      std::fill_n(image.begin(), kFence, kPatterns[0]);
      std::fill_n(image.end() - kFence, kFence, kPatterns[0]);
    }
    return {};
  }

  // Whether the stage's result changes when these bytes of one buffer do.
  Result<bool> depends(std::uint32_t stage, const Images& real, const std::vector<std::vector<bool>>& read,
                       std::uint32_t buffer, std::size_t begin, std::size_t end) {
    Images before = truth_;
    for (std::size_t i = begin; i < end; ++i) {
      if (!read[buffer][i]) before[buffer][i] ^= kPatterns[1];
    }
    Result<Images> after = run_on(stage, before);
    if (!after.ok()) return after.status();
    for (std::size_t b = 0; b < before.size(); ++b) {
      for (std::size_t i = 0; i < before[b].size(); ++i) {
        const std::uint8_t x = (*after)[b][i];
        const bool kept = x == before[b][i] && real[b][i] == truth_[b][i];
        if (x != real[b][i] && !kept && !varies_[b][i]) return true;
      }
    }
    return false;
  }

  Status locate_reads(std::uint32_t stage, const Images& real, const std::vector<std::vector<bool>>& read) {
    for (std::uint32_t b = 0; b < truth_.size(); ++b) {
      Result<bool> any = depends(stage, real, read, b, 0, truth_[b].size());
      if (!any.ok()) return any.status();
      if (!*any) continue;
      std::size_t none = 0, some = truth_[b].size();  // the first byte read lies in [none, some)
      while (some - none > 1) {
        const std::size_t middle = none + (some - none) / 2;
        Result<bool> before_middle = depends(stage, real, read, b, none, middle);
        if (!before_middle.ok()) return before_middle.status();
        (*before_middle ? some : none) = middle;
      }
      Finding& finding = add(stage, b, none, false);
      for (std::uint32_t other = 0; other < impl_.stages.size() && finding.other.empty(); ++other) {
        if (!may_overlap(stage, other)) continue;
        const StageInfo& info = impl_.stages[other];
        for (std::uint32_t r = 0; r < info.ranges; ++r) {
          const RangeAccess& range = impl_.ranges[info.first_range + r];
          if (range.buffer != b || !range.writes) continue;
          Result<bool> races = depends(stage, real, read, b, range.begin + kFence, range.end + kFence);
          if (!races.ok()) return races.status();
          if (*races) finding.other = info.name;
        }
      }
    }
    return {};
  }

  void report_write(std::uint32_t stage, std::uint32_t buffer, std::size_t first, std::size_t last) {
    Finding& finding = add(stage, buffer, first, true);
    for (std::uint32_t other = 0; other < impl_.stages.size() && finding.other.empty(); ++other) {
      if (!may_overlap(stage, other)) continue;
      const StageInfo& info = impl_.stages[other];
      for (std::uint32_t r = 0; r < info.ranges; ++r) {
        const RangeAccess& range = impl_.ranges[info.first_range + r];
        if (range.buffer == buffer && range.begin + kFence <= last && first < range.end + kFence)
          finding.other = info.name;
      }
    }
    for (const Touched& t : touched_) {
      if (finding.other.empty() && t.buffer == buffer && may_overlap(stage, t.stage) && t.first <= last &&
          first <= t.last)
        finding.other = name(t.stage);
    }
    touched_.push_back({stage, buffer, first, last});
  }

  bool may_overlap(std::uint32_t a, std::uint32_t b) const {
    return a != b && !impl_.reach.before(a, b) && !impl_.reach.before(b, a);
  }
  const char* name(std::uint32_t stage) const { return impl_.stages[stage].name.c_str(); }
  Finding& add(std::uint32_t stage, std::uint32_t buffer, std::size_t at, bool is_write) {
    return findings_.emplace_back(Finding{name(stage), "", impl_.buffers[buffer].name, is_write,
                                          static_cast<std::int64_t>(at) - static_cast<std::int64_t>(kFence)});
  }

  Pipeline::Impl& impl_;
  const DriverCalls& calls_;
  Copies copies_;
  Images truth_;                           // what the buffers hold before the stage, were it run for real
  std::vector<std::vector<bool>> varies_;  // bytes that differ from run to run by themselves
  std::vector<Touched> touched_;
  std::vector<Finding> findings_;
};

Result<std::vector<Finding>> Pipeline::check() {
  if (Status s = impl_->plan(); !s.ok()) return s;
  if (Status s = impl_->check_buffers(); !s.ok()) return s;
  impl_->calls->synchronize_context();
  Result<std::vector<Finding>> findings = Checker(impl_.get()).run();
  for (StageInfo& stage : impl_->stages)
    stage.version += stage.kind == Kind::kHost;  // their addresses were the copies'
  impl_->ready = false;
  return findings;
}

}  // namespace sluice::graph
