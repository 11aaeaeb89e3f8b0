// Takes the weights out of a serialized ONNX model before protobuf parses it: they stay in the mapped file, so that no
// copy of them is made, and what a small file can make protobuf allocate is bounded.
//
// Protobuf's wire format: https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/engine.h"

namespace sluice::engine {

struct SlimModel {
  std::string proto;                                // a ModelProto whose large raw_data are markers
  std::vector<std::span<const std::byte>> extents;  // what the markers stand for, in the file
  std::string nonce;                                // how a marker starts; drawn anew for each model

  // The bytes that a TensorProto's raw_data stands for: an extent, or the string's own.
  std::span<const std::byte> resolve(std::string_view raw_data) const;
};

// Errors: kInvalidArgument (no well-formed ModelProto), kResourceExhausted (limits).
Result<SlimModel> slim_model(std::span<const std::byte> file, const Limits& limits);

}  // namespace sluice::engine
