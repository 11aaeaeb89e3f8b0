#include "streams.h"

namespace sluice::memory {

Streams::~Streams() {
  for (const Stream& stream : streams_) {
    if (stream.event != nullptr) driver_.event_destroy(stream.event);
  }
}

int Streams::unused() const {
  for (const Stream& stream : streams_) {
    if (stream.forgotten && stream.parked.empty()) return stream.owner;
  }
  return -1;
}

Stream& Streams::add(CUstream stream, int owner) {
  const auto index = static_cast<std::size_t>(owner);
  if (streams_.size() <= index) streams_.resize(index + 1);
  Stream& added = streams_[index];
  added.stream = stream;
  added.owner = owner;
  added.per_thread = stream == CU_STREAM_PER_THREAD;
  added.ended = added.forgotten = false;
  ++added.given;
  return added;
}

Stream* Streams::find(CUstream stream) {
  for (std::size_t i = 1; i < streams_.size(); ++i) {
    if (streams_[i].stream == stream && !streams_[i].per_thread && !streams_[i].ended) return &streams_[i];
  }
  return nullptr;
}

bool Streams::is_capturing(const Stream& stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // An error is the legacy stream's while another one captures: then nothing may be recorded in it either.
  return driver_.is_capturing(stream.stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool Streams::is_reachable(const Stream& stream, const Stream& from) const {
  if (stream.ended || (stream.per_thread && stream.owner != from.owner)) return false;
  return !is_capturing(stream);
}

bool Streams::record(Stream* stream) {
  if (stream->recorded_at == stream->given) return true;
  if (stream->event == nullptr && driver_.event_create(&stream->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
    return false;
  if (driver_.event_record(stream->event, stream->stream) != CUDA_SUCCESS) return false;
  stream->recorded_at = stream->given;
  return true;
}

}  // namespace sluice::memory
