// What a program allocated and freed, in order: recorded, or generated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sluice/base/status.h"

namespace sluice::bench {

struct Event {
  std::uint32_t block = 0;   // numbers are used again
  std::uint64_t bytes = 0;   // 0: the block is freed
  std::uint32_t stream = 0;  // below Trace::streams
};

struct Trace {
  std::string name;
  std::uint32_t blocks = 0;  // one more than the largest number
  std::uint32_t streams = 1;
  std::uint64_t peak_bytes = 0;  // the most that was allocated at one time, as asked for
  std::vector<Event> events;
};

// {"name": "...", "events": [[block, bytes, stream], ...]}: bytes 0 frees the block. What is never freed is freed at
// the end. Errors: kInvalidArgument names the event that makes no sense (freed but not allocated, allocated twice).
Result<Trace> parse_trace(const std::string& text);
Result<Trace> read_trace(const std::string& path);

// Training steps as frameworks do them: activations that live from the forward to the backward pass, workspaces that
// live for one operator, gradients, and optimizer state that stays. Sizes are a small network's, and the same each
// time.
//   cnn          activations that shrink from layer to layer; the same sizes in every step
//   transformer  many equal layers; the sequence length, and all sizes with it, differ from step to step
//   small        thousands of blocks under 8 KiB, as optimizers that are not fused make them
Trace generate_trace(const std::string& kind);
const std::vector<std::string>& generated_kinds();

}  // namespace sluice::bench
