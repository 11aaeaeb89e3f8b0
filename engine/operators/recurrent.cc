// RNN, GRU and LSTM. Formulas: https://onnx.ai/onnx/operators/onnx__LSTM.html and its neighbours.
#include "operators/recurrent.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>

#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

constexpr int kParts = 16;  // sums that do not wait for one another

enum class Cell { kRnn, kGru, kLstm };

constexpr std::int64_t gates_of(Cell cell) { return cell == Cell::kRnn ? 1 : cell == Cell::kGru ? 3 : 4; }

// Inputs, where the operators have them: X, W, R, B, sequence_lens, initial_h, initial_c, P.
enum Input : std::size_t { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kPeepholes };

struct Sizes {
  std::int64_t steps = 0, batch = 0, input = 0, hidden = 0, directions = 0;
  bool batch_first = false;

  // Of the line for one step, in X and Y; and of one direction's state in Y_h and initial_h.
  std::int64_t x(std::int64_t t, std::int64_t b) const { return (batch_first ? b * steps + t : t * batch + b) * input; }
  std::int64_t y(std::int64_t t, std::int64_t b, std::int64_t d) const {
    return (batch_first ? (b * steps + t) * directions + d : (t * directions + d) * batch + b) * hidden;
  }
  std::int64_t state(std::int64_t b, std::int64_t d) const {
    return (batch_first ? b * directions + d : d * batch + b) * hidden;
  }
};

std::vector<std::string> default_activations(Cell cell) {
  return cell == Cell::kRnn   ? std::vector<std::string>{"Tanh"}
         : cell == Cell::kGru ? std::vector<std::string>{"Sigmoid", "Tanh"}
                              : std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"};
}

template <Cell cell>
Status check(const Node& node) {
  const std::string direction = node.get_string("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    return refuse(node, "direction '" + direction.substr(0, 20) + "'", "use forward, reverse or bidirectional");
  }
  if (node.has("clip") && !(node.get_float("clip", 1) > 0)) {
    return refuse(node, "a clip that is not above 0", "export the model without it");
  }
  auto activations = recurrent_activations(node, default_activations(cell));
  return activations.ok() ? Status() : activations.status();
}

Sizes sizes_of(const Node& node, const Dims& x, const Dims& r) {
  Sizes s;
  s.batch_first = node.get_int("layout", 0) != 0;
  s.steps = x[s.batch_first ? 1 : 0];
  s.batch = x[s.batch_first ? 0 : 1];
  s.input = x[2];
  s.hidden = r[2];
  s.directions = r[0];
  return s;
}

template <Cell cell>
Status infer(ShapeContext& context) {
  const Node& node = context.node();
  if (context.rank(kX) != 3 || context.rank(kR) != 3) {
    return context.error(Code::kInvalidArgument, "X or R have not three dimensions");
  }
  const Sizes s = sizes_of(node, context.dims(kX), context.dims(kR));
  if (s.hidden != node.get_int("hidden_size", s.hidden) ||
      s.directions != (node.get_string("direction", "forward") == "bidirectional" ? 2 : 1)) {
    return context.error(Code::kInvalidArgument, "R of shape %s does not fit hidden_size and direction",
                         to_string(context.dims(kR)).c_str());
  }
  const std::int64_t rows = gates_of(cell) * s.hidden;
  const Dims state = s.batch_first ? Dims{s.batch, s.directions, s.hidden} : Dims{s.directions, s.batch, s.hidden};
  const Dims expected[] = {context.dims(kX),
                           {s.directions, rows, s.input},
                           {s.directions, rows, s.hidden},
                           {s.directions, 2 * rows},
                           {s.batch},
                           state,
                           state,
                           {s.directions, 3 * s.hidden}};
  for (std::size_t i = 0; i < context.input_count(); ++i) {
    if (context.has_input(i) && context.dims(i) != expected[i]) {
      return context.error(Code::kInvalidArgument, "input %zu has the shape %s instead of %s", i,
                           to_string(context.dims(i)).c_str(), to_string(expected[i]).c_str());
    }
  }
  for (const std::size_t output : {1u, 2u}) {
    if (Status status = context.set(output, state); !status.ok()) {
      return status;
    }
  }
  return context.set(0, s.batch_first ? Dims{s.batch, s.steps, s.directions, s.hidden}
                                      : Dims{s.steps, s.directions, s.batch, s.hidden});
}

// The weights of one direction; nullptr where left out.
struct Weights {
  const float* w = nullptr;
  const float* r = nullptr;
  const float* b = nullptr;
  const float* p = nullptr;
};

template <Cell cell>
class Recurrent final : public Kernel {
 public:
  Recurrent(const Node& node, const Sizes& sizes, std::vector<RecurrentActivation> activations)
      : node_(node),
        s_(sizes),
        activations_(std::move(activations)),
        clip_(node.get_float("clip", 0)),
        coupled_(node.get_int("input_forget", 0) != 0),
        reset_after_(node.get_int("linear_before_reset", 0) != 0) {}

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>((2 * gates_of(cell) + 3) * s_.hidden) * sizeof(float);
  }

  Status run(const KernelRun& run) override {
    const auto* lengths = input<std::int32_t>(run, kLengths);
    for (std::int64_t b = 0; lengths != nullptr && b < s_.batch; ++b) {
      if (lengths[b] < 0 || lengths[b] > s_.steps) {
        return Status::error(Code::kInvalidArgument, "%s: a sequence of %d steps where there are %lld",
                             describe(node_).c_str(), lengths[b], static_cast<long long>(s_.steps));
      }
    }
    for (std::int64_t d = 0; d < s_.directions; ++d) {
      for (std::int64_t b = 0; b < s_.batch; ++b) {
        one_sequence(run, d, b, lengths != nullptr ? lengths[b] : s_.steps);
      }
    }
    return {};
  }

 private:
  template <class T>
  static const T* input(const KernelRun& run, std::size_t i) {
    return i < run.inputs.size() && run.inputs[i].present() ? run.inputs[i].as<T>() : nullptr;
  }
  static float* output(const KernelRun& run, std::size_t i) {
    return i < run.outputs.size() && run.outputs[i].present() ? run.outputs[i].out<float>() : nullptr;
  }

  // Scratch: h, c and r * h, then what the input and what the state give to the gates.
  float* h(const KernelRun& run) const { return reinterpret_cast<float*>(run.scratch); }
  float* c(const KernelRun& run) const { return h(run) + s_.hidden; }

  void load_state(const KernelRun& run, std::size_t i, std::int64_t d, std::int64_t b, float* state) const {
    const auto* initial = input<float>(run, i);
    if (initial != nullptr) {
      std::copy_n(initial + s_.state(b, d), s_.hidden, state);
    } else {
      std::fill_n(state, s_.hidden, 0.0f);
    }
  }

  void one_sequence(const KernelRun& run, std::int64_t d, std::int64_t b, std::int64_t length) {
    const std::int64_t rows = gates_of(cell) * s_.hidden;
    Weights weights{input<float>(run, kW) + d * rows * s_.input, input<float>(run, kR) + d * rows * s_.hidden,
                    input<float>(run, kB), input<float>(run, kPeepholes)};
    weights.b += weights.b != nullptr ? d * 2 * rows : 0;
    weights.p += weights.p != nullptr ? d * 3 * s_.hidden : 0;
    const RecurrentActivation* functions = activations_.data() + static_cast<std::size_t>(d) * activations_.size() /
                                                                     static_cast<std::size_t>(s_.directions);
    load_state(run, kInitialH, d, b, h(run));
    load_state(run, kInitialC, d, b, c(run));
    const bool reverse = d == 1 || node_.get_string("direction", "forward") == "reverse";
    float* y = output(run, 0);
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t t = reverse ? length - 1 - i : i;
      step(run, weights, functions, input<float>(run, kX) + s_.x(t, b));
      if (y != nullptr) {
        std::copy_n(h(run), s_.hidden, y + s_.y(t, b, d));
      }
    }
    for (std::int64_t t = length; y != nullptr && t < s_.steps; ++t) {
      std::fill_n(y + s_.y(t, b, d), s_.hidden, 0.0f);
    }
    for (const std::size_t i : {1u, 2u}) {
      if (float* state = output(run, i); state != nullptr) {
        std::copy_n(i == 1 ? h(run) : c(run), s_.hidden, state + s_.state(b, d));
      }
    }
  }

  float clipped(float value) const { return clip_ > 0 ? std::clamp(value, -clip_, clip_) : value; }

  // sums[i] = rows[i] * vector + bias[i]
  static void multiply(const float* rows, const float* vector, const float* bias, std::int64_t count,
                       std::int64_t depth, float* sums) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float* row = rows + i * depth;
      float parts[kParts] = {};
      std::int64_t k = 0;
      for (; k + kParts <= depth; k += kParts) {
        for (int part = 0; part < kParts; ++part) {
          parts[part] += row[k + part] * vector[k + part];
        }
      }
      float sum = std::accumulate(std::begin(parts), std::end(parts), 0.0f);
      for (; k < depth; ++k) {
        sum += row[k] * vector[k];
      }
      sums[i] = sum + (bias != nullptr ? bias[i] : 0);
    }
  }

  void step(const KernelRun& run, const Weights& weights, const RecurrentActivation* functions, const float* x) {
    const std::int64_t n = s_.hidden, rows = gates_of(cell) * n;
    float* reset = c(run) + n;
    float* from_x = reset + n;
    float* from_h = from_x + rows;
    const float* state_bias = weights.b != nullptr ? weights.b + rows : nullptr;
    multiply(weights.w, x, weights.b, rows, s_.input, from_x);
    multiply(weights.r, h(run), state_bias, rows, n, from_h);
    const auto gate = [&](std::int64_t g, std::int64_t i) { return from_x[g * n + i] + from_h[g * n + i]; };
    if constexpr (cell == Cell::kRnn) {
      for (std::int64_t i = 0; i < n; ++i) {
        h(run)[i] = functions[0](clipped(gate(0, i)));
      }
    } else if constexpr (cell == Cell::kGru) {
      for (std::int64_t i = 0; i < n; ++i) {  // gates z, r, h
        reset[i] = functions[0](clipped(gate(1, i)));
        from_h[2 * n + i] *= reset_after_ ? reset[i] : 1;
        reset[i] *= h(run)[i];
      }
      if (!reset_after_) {
        multiply(weights.r + 2 * n * n, reset, state_bias != nullptr ? state_bias + 2 * n : nullptr, n, n,
                 from_h + 2 * n);
      }
      for (std::int64_t i = 0; i < n; ++i) {
        const float update = functions[0](clipped(gate(0, i)));
        h(run)[i] = (1 - update) * functions[1](clipped(gate(2, i))) + update * h(run)[i];
      }
    } else {
      for (std::int64_t i = 0; i < n; ++i) {  // gates i, o, f, c; peepholes i, o, f
        const auto peephole = [&](std::int64_t g, float value) {
          return weights.p != nullptr ? weights.p[g * n + i] * value : 0;
        };
        float& cell_state = c(run)[i];
        const float in = functions[0](clipped(gate(0, i) + peephole(0, cell_state)));
        const float forget = coupled_ ? 1 - in : functions[0](clipped(gate(2, i) + peephole(2, cell_state)));
        cell_state = forget * cell_state + in * functions[1](clipped(gate(3, i)));
        const float out = functions[0](clipped(gate(1, i) + peephole(1, cell_state)));
        h(run)[i] = out * functions[2](clipped(cell_state));
      }
    }
  }

  Node node_;
  Sizes s_;
  std::vector<RecurrentActivation> activations_;
  float clip_;  // 0: none
  bool coupled_, reset_after_;
};

template <Cell cell>
Result<std::unique_ptr<Kernel>> make(KernelContext& context) {
  auto activations = recurrent_activations(context.node(), default_activations(cell));
  if (!activations.ok()) {
    return activations.status();
  }
  return Result<std::unique_ptr<Kernel>>(std::make_unique<Recurrent<cell>>(
      context.node(), sizes_of(context.node(), context.input(kX).dims, context.input(kR).dims),
      std::move(*activations)));
}

// The attributes that all three share; literals, since schemas keep the pointer.
#define SLUICE_RECURRENT                                                                                 \
  "activation_alpha:floats, activation_beta:floats, activations:strings, clip:float, direction:string, " \
  "hidden_size:int"

template <Cell cell>
void add(Registry& registry, const char* op, const char* inputs, const char* outputs, const char* attributes,
         const char* attributes_since_14) {
  for (const bool layout : {false, true}) {
    registry.add({.op = op,
                  .first = layout ? 14 : 7,
                  .last = layout ? 17 : 13,
                  .inputs = inputs,
                  .outputs = outputs,
                  .attributes = layout ? attributes_since_14 : attributes,
                  .types = {{"T", kFloat32}, {"I", types_of({DType::kInt32})}},
                  .infer = infer<cell>,
                  .kernel = make<cell>,
                  .check = check<cell>});
  }
}

}  // namespace

void register_recurrent(Registry& registry) {
  const char* const inputs = "X:T, W:T, R:T, B:T?, sequence_lens:I?, initial_h:T?";
  add<Cell::kRnn>(registry, "RNN", inputs, "Y:T?, Y_h:T?", SLUICE_RECURRENT, SLUICE_RECURRENT ", layout:int");
  add<Cell::kGru>(registry, "GRU", inputs, "Y:T?, Y_h:T?", SLUICE_RECURRENT ", linear_before_reset:int",
                  SLUICE_RECURRENT ", linear_before_reset:int, layout:int");
  add<Cell::kLstm>(registry, "LSTM", "X:T, W:T, R:T, B:T?, sequence_lens:I?, initial_h:T?, initial_c:T?, P:T?",
                   "Y:T?, Y_h:T?, Y_c:T?", SLUICE_RECURRENT ", input_forget:int",
                   SLUICE_RECURRENT ", input_forget:int, layout:int");
}
#undef SLUICE_RECURRENT

}  // namespace sluice::engine
