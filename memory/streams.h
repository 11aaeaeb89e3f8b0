// The streams that use a pool, as owners of its free blocks, and what is known of their progress.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "driver_calls.h"

namespace sluice::memory {

struct Stream {
  CUstream stream = nullptr;
  int owner = 0;
  // CU_STREAM_PER_THREAD is another stream in every thread: only its own can ask the driver about it.
  bool per_thread = false;
  bool ended = false;                             // its thread has, or it was forgotten: no event may be recorded in it
  bool forgotten = false;                         // and all its work is done
  CUevent event = nullptr;                        // made at the first use
  std::uint64_t given = 0;                        // changes whenever something is freed behind it
  std::uint64_t recorded_at = ~std::uint64_t{0};  // `given` when `event` was last recorded
  std::vector<std::uint64_t> parked;              // small blocks freed behind it that are of another stream's slabs
};

// Not thread safe.
class Streams {
 public:
  explicit Streams(const DriverCalls& driver) : driver_(driver) {}
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // The number of a forgotten stream, of which nothing is left, or -1.
  int unused() const;
  Stream& add(CUstream stream, int owner);
  Stream* find(CUstream stream);  // never one that is per_thread
  Stream& of(int owner) { return streams_[static_cast<std::size_t>(owner)]; }
  std::vector<Stream>& all() { return streams_; }  // [0] is nobody's

  // Whether an event in it says what it has done: not if it is another thread's, or captured.
  bool is_reachable(const Stream& stream, const Stream& from) const;
  bool is_capturing(const Stream& stream) const;
  // Records that all that was freed behind `stream` so far is free once its event has happened.
  bool record(Stream* stream);
  // Whether all that was freed behind it is free: it has nothing left to do, or has done what record() asked for.
  bool is_done(const Stream& stream) const {
    return driver_.stream_query(stream.stream) == CUDA_SUCCESS ||
           (stream.recorded_at == stream.given && driver_.event_query(stream.event) == CUDA_SUCCESS);
  }

 private:
  const DriverCalls& driver_;
  std::vector<Stream> streams_ = std::vector<Stream>(1);
};

}  // namespace sluice::memory
