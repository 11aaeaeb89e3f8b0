#include "trace.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

namespace sluice::bench {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr std::uint32_t kMaxNumber = 1u << 24;  // of a block or stream

// Checks what the events say, frees what is left, and finds the peak.
Status finish(Trace* trace) {
  std::vector<std::uint64_t> live;
  std::uint64_t now = 0;
  for (std::size_t i = 0; i < trace->events.size(); ++i) {
    const Event& event = trace->events[i];
    if (event.block >= kMaxNumber || event.stream >= kMaxNumber)
      return Status::error(Code::kInvalidArgument, "event %zu: a number over %u", i, kMaxNumber);
    if (live.size() <= event.block) live.resize(event.block + 1);
    trace->streams = std::max(trace->streams, event.stream + 1);
    if ((event.bytes == 0) == (live[event.block] == 0)) {
      return Status::error(Code::kInvalidArgument, "event %zu: block %u is %s", i, event.block,
                           event.bytes == 0 ? "freed but not allocated" : "allocated twice");
    }
    if (event.bytes > (std::uint64_t{1} << 50))
      return Status::error(Code::kInvalidArgument, "event %zu: %llu bytes", i,
                           static_cast<unsigned long long>(event.bytes));
    now = now - live[event.block] + event.bytes;
    live[event.block] = event.bytes;
    trace->peak_bytes = std::max(trace->peak_bytes, now);
  }
  for (std::uint32_t block = 0; block < live.size(); ++block) {
    if (live[block] != 0) trace->events.push_back({block, 0, 0});
  }
  trace->blocks = static_cast<std::uint32_t>(live.size());
  return {};
}

class Generator {
 public:
  std::uint32_t allocate(std::uint64_t bytes) {
    std::uint32_t block = next_;
    if (spare_.empty()) {
      ++next_;
    } else {
      block = spare_.back();
      spare_.pop_back();
    }
    events.push_back({block, std::max<std::uint64_t>(bytes, 1), 0});
    return block;
  }
  void free(std::uint32_t block) {
    events.push_back({block, 0, 0});
    spare_.push_back(block);
  }

  std::vector<Event> events;
  std::mt19937_64 random{20260101};

 private:
  std::uint32_t next_ = 0;
  std::vector<std::uint32_t> spare_;
};

struct Layer {
  std::uint64_t weights = 0, activation = 0, workspace = 0;
};

void train_step(const std::vector<Layer>& layers, Generator* out) {
  std::vector<std::uint32_t> saved, gradients;
  for (const Layer& layer : layers) {
    saved.push_back(out->allocate(layer.activation));
    const std::uint32_t workspace = layer.workspace > 0 ? out->allocate(layer.workspace) : 0;
    saved.push_back(out->allocate(layer.activation));  // what the activation function keeps
    if (layer.workspace > 0) out->free(workspace);
  }
  std::uint32_t flowing = out->allocate(layers.back().activation);
  for (std::size_t i = layers.size(); i-- > 0;) {
    const std::uint32_t workspace = layers[i].workspace > 0 ? out->allocate(layers[i].workspace * 2) : 0;
    gradients.push_back(out->allocate(layers[i].weights));
    const std::uint32_t next = out->allocate(layers[i > 0 ? i - 1 : 0].activation);
    out->free(flowing);
    flowing = next;
    out->free(saved[2 * i + 1]);
    out->free(saved[2 * i]);
    if (layers[i].workspace > 0) out->free(workspace);
  }
  out->free(flowing);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const std::uint32_t temporary = out->allocate(layers[layers.size() - 1 - i].weights);
    out->free(temporary);
    out->free(gradients[i]);
  }
}

void keep_weights(const std::vector<Layer>& layers, Generator* out) {
  for (const Layer& layer : layers) {
    for (int copies = 0; copies < 3; ++copies) out->allocate(layer.weights);  // and the optimizer's two moments
  }
}

void cnn(Generator* out) {
  std::vector<Layer> layers;
  for (int i = 0; i < 50; ++i) {
    const int stage = i / 13;
    Layer layer;
    layer.activation = (6 * kMiB >> stage) + static_cast<std::uint64_t>(i % 3) * 128 * kKiB;
    layer.weights = (36 * kKiB << (2 * stage)) + static_cast<std::uint64_t>(i) * 64;
    layer.workspace = i % 4 == 0 ? (3 * kMiB >> stage) : 0;
    layers.push_back(layer);
  }
  keep_weights(layers, out);
  for (int step = 0; step < 20; ++step) train_step(layers, out);
}

void transformer(Generator* out) {
  const auto at_length = [](std::uint64_t tokens) {
    std::vector<Layer> layers;
    for (int i = 0; i < 24; ++i) {
      layers.push_back({3 * kMiB, tokens * 768 * 4 * 3, tokens * tokens * 12 * 2});          // attention
      layers.push_back({9 * kMiB / 2, tokens * 3072 * 4, 0});                                // feed-forward
      layers.push_back({6 * kKiB, tokens * 768 * 4, std::uint64_t{i % 2 == 0} * 4 * kKiB});  // normalisation
    }
    return layers;
  };
  keep_weights(at_length(1), out);
  for (int step = 0; step < 20; ++step) train_step(at_length(128 + out->random() % 385), out);
}

void small(Generator* out) {
  std::vector<std::uint32_t> live;
  for (int i = 0; i < 60000; ++i) {
    if (live.size() > 3000 || (!live.empty() && out->random() % 2 == 0)) {
      std::swap(live[out->random() % live.size()], live.back());
      out->free(live.back());
      live.pop_back();
    } else {
      live.push_back(out->allocate(1 + out->random() % (8 * kKiB)));
    }
  }
  for (std::uint32_t block : live) out->free(block);
}

const std::map<std::string, void (*)(Generator*)> kGenerators = {
    {"cnn", &cnn}, {"small", &small}, {"transformer", &transformer}};

}  // namespace

Result<Trace> parse_trace(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("events") || !json["events"].is_array() || !json.contains("name") ||
      !json["name"].is_string())
    return Status::error(Code::kInvalidArgument, "not JSON with a \"name\" and an array \"events\"");
  Trace trace;
  trace.name = json["name"].get<std::string>();
  for (const nlohmann::json& event : json["events"]) {
    const auto is_number = [](const nlohmann::json& value) { return value.is_number_unsigned(); };
    if (!event.is_array() || event.size() != 3 || !std::all_of(event.begin(), event.end(), is_number))
      return Status::error(Code::kInvalidArgument, "event %zu is not [block, bytes, stream]", trace.events.size());
    const auto block = event[0].get<std::uint64_t>(), stream = event[2].get<std::uint64_t>();
    trace.events.push_back({static_cast<std::uint32_t>(std::min<std::uint64_t>(block, kMaxNumber)),
                            event[1].get<std::uint64_t>(),
                            static_cast<std::uint32_t>(std::min<std::uint64_t>(stream, kMaxNumber))});
  }
  if (Status status = finish(&trace); !status.ok()) return status;
  return trace;
}

Result<Trace> read_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status::error(Code::kNotFound, "cannot read %.200s", path.c_str());
  std::ostringstream text;
  text << file.rdbuf();
  Result<Trace> trace = parse_trace(text.str());
  if (!trace.ok()) return Status::error(trace.status().code(), "%.100s: %s", path.c_str(), trace.status().message());
  return trace;
}

Trace generate_trace(const std::string& kind) {
  Generator generator;
  kGenerators.at(kind)(&generator);
  Trace trace;
  trace.name = kind;
  trace.events = std::move(generator.events);
  static_cast<void>(finish(&trace).ok());  // it is right by construction; trace_test checks that
  return trace;
}

const std::vector<std::string>& generated_kinds() {
  static const std::vector<std::string> kinds = [] {
    std::vector<std::string> names;
    for (const auto& [name, make] : kGenerators) names.push_back(name);
    return names;
  }();
  return kinds;
}

}  // namespace sluice::bench
