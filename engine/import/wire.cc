#include "import/wire.h"

#include <sys/random.h>

#include <cstring>

namespace sluice::engine {
namespace {

// The messages of onnx.proto through which tensors can be reached, and which fields hold messages.
enum Message : std::uint8_t {
  kOpaque,
  kModel,
  kGraph,
  kNode,
  kAttribute,
  kTensor,
  kSparseTensor,
  kValueInfo,
  kType,
  kTensorType,
  kSequenceType,
  kShape,
  kPairs,
  kFunction,
  kDimension,
  kTraining,
};

struct Field {
  Message in;
  std::uint32_t number;
  Message holds;
};

constexpr Field kFields[] = {
    {kModel, 7, kGraph},
    {kModel, 8, kPairs},
    {kModel, 14, kPairs},
    {kModel, 20, kTraining},
    {kModel, 25, kFunction},
    {kGraph, 1, kNode},
    {kGraph, 5, kTensor},
    {kGraph, 11, kValueInfo},
    {kGraph, 12, kValueInfo},
    {kGraph, 13, kValueInfo},
    {kGraph, 14, kPairs},
    {kGraph, 15, kSparseTensor},
    {kNode, 5, kAttribute},
    {kAttribute, 5, kTensor},
    {kAttribute, 6, kGraph},
    {kAttribute, 10, kTensor},
    {kAttribute, 11, kGraph},
    {kAttribute, 14, kType},
    {kAttribute, 15, kType},
    {kAttribute, 22, kSparseTensor},
    {kAttribute, 23, kSparseTensor},
    {kTensor, 13, kPairs},
    {kSparseTensor, 1, kTensor},
    {kSparseTensor, 2, kTensor},
    {kValueInfo, 2, kType},
    {kType, 1, kTensorType},
    {kType, 4, kSequenceType},
    {kType, 5, kSequenceType},
    {kType, 8, kTensorType},
    {kType, 9, kSequenceType},
    {kTensorType, 2, kShape},
    {kSequenceType, 1, kType},
    {kSequenceType, 2, kType},
    {kShape, 1, kDimension},
    {kFunction, 7, kNode},
    {kFunction, 9, kPairs},
    {kTraining, 1, kGraph},
    {kTraining, 2, kGraph},
    {kTraining, 3, kPairs},
    {kTraining, 4, kPairs},
};

constexpr std::uint32_t kRawData = 9;          // of TensorProto
constexpr std::size_t kSmallestExtent = 1024;  // smaller tensors are copied with the rest

Message message_of(Message in, std::uint32_t number) {
  for (const Field& field : kFields) {
    if (field.in == in && field.number == number) {
      return field.holds;
    }
  }
  return kOpaque;
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    out.push_back(static_cast<char>(value | 0x80));
  }
  out.push_back(static_cast<char>(value));
}

class Slimmer {
 public:
  Slimmer(const Limits& limits, SlimModel& model) : limits_(limits), model_(model) {}

  Status copy(Message message, std::span<const std::byte> in, std::string& out, std::uint32_t depth) {
    if (depth > limits_.depth) {
      return exhausted("messages nest deeper than", limits_.depth);
    }
    std::size_t at = 0;
    while (at < in.size()) {
      const std::size_t start = at;
      std::uint64_t tag = 0, value = 0;
      if (!varint(in, at, tag) || tag > 0xffffffffu || tag >> 3 == 0) {
        return damaged();
      }
      const auto number = static_cast<std::uint32_t>(tag >> 3);
      switch (tag & 7) {
        case 0:
          if (!varint(in, at, value)) {
            return damaged();
          }
          break;
        case 1:
          at += 8;
          break;
        case 5:
          at += 4;
          break;
        case 2: {
          if (!varint(in, at, value) || value > in.size() - at) {
            return damaged();
          }
          if (++elements_ > limits_.elements) {
            return exhausted("it has more messages and strings than", limits_.elements);
          }
          const auto payload = in.subspan(at, value);
          at += value;
          const Message inner = message_of(message, number);
          std::string text;
          if (message == kTensor && number == kRawData && payload.size() >= kSmallestExtent) {
            text = model_.nonce;
            put_varint(text, model_.extents.size());
            model_.extents.push_back(payload);
          } else if (inner != kOpaque) {
            if (Status status = copy(inner, payload, text, depth + 1); !status.ok()) {
              return status;
            }
          } else {
            break;
          }
          put_varint(out, tag);
          put_varint(out, text.size());
          out += text;
          continue;
        }
        default:  // groups, which ONNX does not have, and what is no wire type
          return damaged();
      }
      if (at > in.size()) {
        return damaged();
      }
      copied_ += at - start;
      if (copied_ > limits_.structure_bytes) {
        return exhausted("without its weights it is over bytes", limits_.structure_bytes);
      }
      out.append(reinterpret_cast<const char*>(in.data()) + start, at - start);
    }
    return {};
  }

 private:
  static bool varint(std::span<const std::byte> in, std::size_t& at, std::uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64 && at < in.size(); shift += 7) {
      const auto byte = std::to_integer<std::uint64_t>(in[at++]);
      value |= (byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) {
        return true;
      }
    }
    return false;
  }

  static Status damaged() {
    return Status::error(Code::kInvalidArgument, "it is no ONNX model, or it is damaged or truncated");
  }
  static Status exhausted(const char* what, std::uint64_t limit) {
    return Status::error(Code::kResourceExhausted, "%s the limit of %llu", what,
                         static_cast<unsigned long long>(limit));
  }

  const Limits& limits_;
  SlimModel& model_;
  std::uint64_t elements_ = 0;
  std::uint64_t copied_ = 0;
};

}  // namespace

Result<SlimModel> slim_model(std::span<const std::byte> file, const Limits& limits) {
  SlimModel model;
  model.nonce.resize(24);
  if (getrandom(model.nonce.data(), model.nonce.size(), 0) != static_cast<ssize_t>(model.nonce.size())) {
    return Status::error(Code::kInternal, "the system gave no random bytes");
  }
  Slimmer slimmer(limits, model);
  if (Status status = slimmer.copy(kModel, file, model.proto, 0); !status.ok()) {
    return status;
  }
  return model;
}

std::span<const std::byte> SlimModel::resolve(std::string_view raw_data) const {
  if (raw_data.starts_with(nonce)) {
    std::size_t index = 0;
    unsigned shift = 0;
    for (const char c : raw_data.substr(nonce.size())) {
      index |= static_cast<std::size_t>(c & 0x7f) << shift;
      shift += 7;
    }
    return extents[index];
  }
  return std::as_bytes(std::span(raw_data.data(), raw_data.size()));
}

}  // namespace sluice::engine
