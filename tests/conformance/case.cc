#include "case.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>

namespace sluice::conformance {
namespace {

using engine::Dims;
using engine::DType;

constexpr rlim_t kCpuSeconds = 60;
[[maybe_unused]] constexpr rlim_t kMemoryBytes = 8ull << 30;
constexpr int kWallMilliseconds = 120'000;

struct Data {
  DType dtype = DType::kUndefined;
  Dims dims;
  std::string bytes;
};

template <class T, class Field>
std::string bytes_of(const Field& field) {
  std::string bytes;
  for (const auto element : field) {
    const T value = static_cast<T>(element);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

// `dtype`: what the model says. ONNX 1.12 wrote bfloat16 as uint16, since numpy had no such type.
bool read_tensor(const std::filesystem::path& path, DType dtype, Data& data) {
  std::ifstream file(path, std::ios::binary);
  onnx::TensorProto proto;
  if (!proto.ParseFromIstream(&file)) {
    return false;
  }
  data.dtype = static_cast<DType>(proto.data_type());
  if (data.dtype == DType::kUint16 && dtype == DType::kBFloat16) {
    data.dtype = dtype;
  }
  data.dims.assign(proto.dims().begin(), proto.dims().end());
  if (proto.has_raw_data()) {
    data.bytes = proto.raw_data();
  } else if (data.dtype == DType::kFloat) {
    data.bytes = bytes_of<float>(proto.float_data());
  } else if (data.dtype == DType::kDouble) {
    data.bytes = bytes_of<double>(proto.double_data());
  } else if (data.dtype == DType::kInt64) {
    data.bytes = bytes_of<std::int64_t>(proto.int64_data());
  } else if (data.dtype == DType::kUint64) {
    data.bytes = bytes_of<std::uint64_t>(proto.uint64_data());
  } else if (data.dtype == DType::kUint32) {
    data.bytes = bytes_of<std::uint32_t>(proto.uint64_data());
  } else if (data.dtype == DType::kInt32) {
    data.bytes = bytes_of<std::int32_t>(proto.int32_data());
  } else if (engine::dtype_bytes(data.dtype) == 2) {
    data.bytes = bytes_of<std::uint16_t>(proto.int32_data());
  } else if (engine::dtype_bytes(data.dtype) == 1) {
    data.bytes = bytes_of<std::uint8_t>(proto.int32_data());
  }
  return engine::dtype_bytes(data.dtype) * static_cast<std::size_t>(engine::element_count(data.dims)) ==
         data.bytes.size();
}

float widen(DType dtype, std::uint16_t bits) {
  if (dtype == DType::kBFloat16) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float magnitude = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                          : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                          : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class T>
T load(const void* data, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + i * sizeof(T), sizeof(T));
  return value;
}

double number(DType dtype, const void* data, std::size_t i) {
  return dtype == DType::kDouble  ? load<double>(data, i)
         : dtype == DType::kFloat ? static_cast<double>(load<float>(data, i))
                                  : static_cast<double>(widen(dtype, load<std::uint16_t>(data, i)));
}

bool is_float(DType dtype) {
  return dtype == DType::kFloat || dtype == DType::kDouble || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

std::string compare(const engine::TensorView& actual, const Data& expected) {
  if (actual.dtype != expected.dtype) {
    return fmt::format("type {} instead of {}", engine::dtype_name(actual.dtype), engine::dtype_name(expected.dtype));
  }
  if (!std::equal(actual.dims.begin(), actual.dims.end(), expected.dims.begin(), expected.dims.end())) {
    return "another shape";
  }
  if (!is_float(expected.dtype)) {
    return actual.bytes == 0 || std::memcmp(actual.data, expected.bytes.data(), actual.bytes) == 0 ? ""
                                                                                                   : "other values";
  }
  for (std::size_t i = 0; i < actual.bytes / engine::dtype_bytes(actual.dtype); ++i) {
    const double a = number(actual.dtype, actual.data, i), e = number(expected.dtype, expected.bytes.data(), i);
    const bool same =
        a == e || (std::isnan(a) && std::isnan(e)) || std::abs(a - e) <= kAbsolute + kRelative * std::abs(e);
    if (!same || std::isinf(a) != std::isinf(e)) {
      return fmt::format("element {}: {} instead of {}", i, a, e);
    }
  }
  return "";
}

Outcome failure(const Status& status) {
  const bool refused = status.code() == Code::kUnimplemented;
  return {refused ? Verdict::kRefused : Verdict::kWrong, status.message()};
}

Outcome run_set(const std::filesystem::path& set, engine::Model& model, engine::Session& session) {
  std::vector<Data> inputs(model.inputs().size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!read_tensor(set / fmt::format("input_{}.pb", i), model.inputs()[i].dtype, inputs[i])) {
      return {Verdict::kWrong, fmt::format("cannot read input {}", i)};
    }
    // Some data of ONNX 1.12 has another shape than its model says (castlike with bfloat16).
    if (Status status =
            session.set_input(model.inputs()[i].name, inputs[i].dtype, inputs[i].dims, inputs[i].bytes.data());
        !status.ok()) {
      return {Verdict::kRefused, status.message()};
    }
  }
  if (Status status = session.run(); !status.ok()) {
    return failure(status);
  }
  for (std::size_t i = 0; i < model.outputs().size(); ++i) {
    Data expected;
    if (!read_tensor(set / fmt::format("output_{}.pb", i), model.outputs()[i].dtype, expected)) {
      return {Verdict::kWrong, fmt::format("cannot read output {}", i)};
    }
    auto actual = session.output(i);
    if (!actual.ok()) {
      return failure(actual.status());
    }
    if (const std::string difference = compare(*actual, expected); !difference.empty()) {
      return {Verdict::kWrong, fmt::format("output {}: {}", i, difference)};
    }
  }
  return {Verdict::kPassed, ""};
}

}  // namespace

Outcome run_case(const std::filesystem::path& folder, const engine::Options& options) {
  auto model = engine::Model::load((folder / "model.onnx").string(), options);
  if (!model.ok()) {
    return failure(model.status());
  }
  auto session = engine::Session::create(*model);
  if (!session.ok()) {
    return failure(session.status());
  }
  Outcome outcome{Verdict::kWrong, "it has no data"};
  for (const auto& set : cases_in(folder)) {
    outcome = run_set(set, **model, **session);
    if (outcome.verdict != Verdict::kPassed) {
      break;
    }
  }
  return outcome;
}

Outcome run_case_apart(const std::filesystem::path& folder, const engine::Options& options) {
  int ends[2];
  if (pipe(ends) != 0) {
    return {Verdict::kWrong, "no pipe"};
  }
  const pid_t child = fork();
  if (child == 0) {
    const rlimit cpu{kCpuSeconds, kCpuSeconds};
    setrlimit(RLIMIT_CPU, &cpu);
#ifndef SLUICE_SANITIZED  // whose shadow memory alone is larger
    const rlimit memory{kMemoryBytes, kMemoryBytes};
    setrlimit(RLIMIT_AS, &memory);
#endif
    const Outcome outcome = run_case(folder, options);
    const std::string text = static_cast<char>(outcome.verdict) + outcome.message;
    const bool written = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  pollfd waiting{ends[0], POLLIN, 0};
  char buffer[4096];
  bool in_time = true;
  while ((in_time = poll(&waiting, 1, kWallMilliseconds) > 0)) {
    const ssize_t count = read(ends[0], buffer, sizeof(buffer));
    if (count <= 0) {
      break;
    }
    text.append(buffer, static_cast<std::size_t>(count));
  }
  close(ends[0]);
  if (!in_time) {
    kill(child, SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    return {Verdict::kWrong, in_time ? fmt::format("killed by signal {}", WTERMSIG(status)) : "out of time"};
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || text.empty()) {
    return {Verdict::kWrong, fmt::format("exited with {}", WEXITSTATUS(status))};
  }
  return {static_cast<Verdict>(text[0]), text.substr(1)};
}

std::string operator_of(const std::filesystem::path& folder) {
  std::ifstream file(folder / "model.onnx", std::ios::binary);
  onnx::ModelProto model;
  if (!model.ParseFromIstream(&file)) {
    return "(unreadable)";
  }
  return model.graph().node_size() == 1 ? model.graph().node(0).op_type() : "(several)";
}

std::filesystem::path suite_cases(const std::string& suite) {
  const std::filesystem::path folder = std::filesystem::path("/usr/share/libonnx-testdata/data") / suite;
  return std::filesystem::is_directory(folder) ? folder : std::filesystem::path();
}

std::vector<std::filesystem::path> cases_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> cases;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_directory()) {
      cases.push_back(entry.path());
    }
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

}  // namespace sluice::conformance
