// What ONNX's own cases leave out of convolutions, products, pools, normalisation, quantization and recurrence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ir/half.h"
#include "testing/run_node.h"

namespace sluice::engine {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;
using Floats = std::vector<float>;
using Ints = std::vector<std::int64_t>;

template <class T>
constexpr DType kTypeOf = std::is_same_v<T, float>          ? DType::kFloat
                          : std::is_same_v<T, Half>         ? DType::kFloat16
                          : std::is_same_v<T, std::int8_t>  ? DType::kInt8
                          : std::is_same_v<T, std::uint8_t> ? DType::kUint8
                          : std::is_same_v<T, std::int32_t> ? DType::kInt32
                                                            : DType::kInt64;

template <class T>
Tensor tensor(Dims dims, const std::vector<T>& values) {
  return test::tensor(kTypeOf<T>, std::move(dims), values);
}

class OneNode {
 public:
  OneNode(const char* op, int opset, std::vector<Tensor> inputs, int outputs = 1)
      : op_(op), opset_(opset), inputs_(std::move(inputs)), outputs_(outputs) {}
  OneNode& set(const char* name, decltype(Attribute::value) value) {
    attributes_.push_back({name, std::move(value)});
    return *this;
  }
  Status run() {
    result_ = test::run_node(op_, opset_, inputs_, attributes_, outputs_);
    return result_.status;
  }
  Dims dims(std::size_t output = 0) const { return result_.dims(output); }
  std::vector<double> values(std::size_t output = 0) const { return result_.values(output); }

 private:
  const char* op_;
  int opset_;
  std::vector<Tensor> inputs_;
  int outputs_;
  std::vector<Attribute> attributes_;
  test::NodeRun result_;
};

Tensor counting(const Dims& dims) {
  Floats values(static_cast<std::size_t>(element_count(dims)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i + 1);
  }
  return tensor(dims, values);
}

#define EXPECT_RUNS(node)                   \
  do {                                      \
    const Status ran = (node).run();        \
    EXPECT_TRUE(ran.ok()) << ran.message(); \
  } while (false)

TEST(ConvTest, SamePaddingWithStridesAndDilations) {
  // Five elements, three taps two apart: an extent of 5, so with a stride of 2 three results need 4 of padding.
  OneNode upper("Conv", 13, {counting({1, 1, 5}), tensor<float>({1, 1, 3}, {1, 10, 100})});
  upper.set("auto_pad", std::string("SAME_UPPER")).set("strides", Ints{2}).set("dilations", Ints{2});
  EXPECT_RUNS(upper);
  EXPECT_THAT(upper.values(), ElementsAre(310, 531, 53));
  // Four elements, two taps, a stride of 1: one of padding, and who gets it.
  OneNode end("Conv", 13, {counting({1, 1, 4}), tensor<float>({1, 1, 2}, {1, 10})});
  end.set("auto_pad", std::string("SAME_UPPER"));
  EXPECT_RUNS(end);
  EXPECT_THAT(end.values(), ElementsAre(21, 32, 43, 4));
  OneNode begin("Conv", 13, {counting({1, 1, 4}), tensor<float>({1, 1, 2}, {1, 10})});
  begin.set("auto_pad", std::string("SAME_LOWER"));
  EXPECT_RUNS(begin);
  EXPECT_THAT(begin.values(), ElementsAre(10, 21, 32, 43));
}

TEST(ConvTest, GroupsSeeTheirOwnChannels) {
  OneNode conv("Conv", 13,
               {counting({1, 4, 2}), tensor<float>({2, 2, 1}, {1, 10, 100, 1000}), tensor<float>({2}, {0.5f, 0})});
  conv.set("group", std::int64_t{2});
  EXPECT_RUNS(conv);
  EXPECT_THAT(conv.values(), ElementsAre(31.5, 42.5, 7500, 8600));
}

TEST(ConvTest, NoBatchIsNoWork) {
  OneNode conv("Conv", 13, {counting({0, 1, 4}), counting({2, 1, 2})});
  EXPECT_RUNS(conv);
  EXPECT_EQ(conv.dims(), (Dims{0, 2, 3}));
}

TEST(ConvTest, RefusesWhatContradictsItself) {
  OneNode both("Conv", 13, {counting({1, 1, 4}), counting({1, 1, 2})});
  both.set("auto_pad", std::string("SAME_UPPER")).set("pads", Ints{1, 0});
  EXPECT_EQ(both.run().code(), Code::kUnimplemented);
  OneNode large("Conv", 13, {counting({1, 1, 4}), counting({1, 1, 5})});
  EXPECT_EQ(large.run().code(), Code::kInvalidArgument);
  OneNode channels("Conv", 13, {counting({1, 3, 4}), counting({2, 1, 2})});
  channels.set("group", std::int64_t{2});
  EXPECT_EQ(channels.run().code(), Code::kInvalidArgument);
  OneNode huge("Conv", 13, {counting({1, 1, 4}), counting({1, 1, 2})});
  huge.set("pads", Ints{std::int64_t{1} << 62, 0});
  EXPECT_EQ(huge.run().code(), Code::kInvalidArgument);
}

TEST(ConvTransposeTest, GroupsAndOutputPadding) {
  OneNode conv("ConvTranspose", 13, {counting({1, 2, 2}), tensor<float>({2, 1, 2}, {1, 10, 100, 1000})});
  conv.set("group", std::int64_t{2}).set("strides", Ints{2}).set("output_padding", Ints{1});
  EXPECT_RUNS(conv);
  EXPECT_THAT(conv.values(), ElementsAre(1, 10, 2, 20, 0, 300, 3000, 400, 4000, 0));
}

TEST(PoolTest, CeilModeLeavesOutWhatBeginsInTheEndPadding) {
  // ceil((4 + 2 - 2) / 3) + 1 = 3, but a third window would begin at 5, behind the input and the padding before it.
  OneNode pool("AveragePool", 11, {counting({1, 1, 4})});
  pool.set("kernel_shape", Ints{2}).set("strides", Ints{3}).set("pads", Ints{1, 1}).set("ceil_mode", std::int64_t{1});
  EXPECT_RUNS(pool);
  EXPECT_THAT(pool.values(), ElementsAre(1, 3.5));
}

TEST(PoolTest, AveragesCountPaddingUpToItsEndOnly) {
  // Windows at -1 and 2: what they hold of the padding counts, what lies behind it does not.
  OneNode pool("AveragePool", 11, {counting({1, 1, 5})});
  pool.set("kernel_shape", Ints{4}).set("strides", Ints{3}).set("pads", Ints{1, 1}).set("ceil_mode", std::int64_t{1});
  pool.set("count_include_pad", std::int64_t{1});
  EXPECT_RUNS(pool);
  EXPECT_THAT(pool.values(), ElementsAre((0 + 1 + 2 + 3) / 4.0, (3 + 4 + 5 + 0) / 4.0));
  OneNode over("AveragePool", 11, {counting({1, 1, 6})});
  over.set("kernel_shape", Ints{4}).set("strides", Ints{3}).set("ceil_mode", std::int64_t{1});
  over.set("count_include_pad", std::int64_t{1});
  EXPECT_RUNS(over);
  EXPECT_THAT(over.values(), ElementsAre(2.5, 5));  // 4, 5 and 6; nothing is behind them
}

TEST(PoolTest, RefusesWindowsOfPaddingOnly) {
  OneNode pool("MaxPool", 11, {counting({1, 1, 4})});
  pool.set("kernel_shape", Ints{2}).set("pads", Ints{2, 0});
  EXPECT_EQ(pool.run().code(), Code::kUnimplemented);
}

TEST(PoolTest, MaximumOfDilatedWindows) {
  OneNode pool("MaxPool", 12, {tensor<std::int8_t>({1, 1, 5}, {3, -7, 2, -9, -128})}, 2);
  pool.set("kernel_shape", Ints{2}).set("dilations", Ints{2});
  EXPECT_RUNS(pool);
  EXPECT_THAT(pool.values(0), ElementsAre(3, -7, 2));
  EXPECT_THAT(pool.values(1), ElementsAre(0, 1, 2));
}

TEST(SoftmaxTest, Opset13SeesOneAxisWhereOlderOnesSeeTheRest) {
  const Tensor x = tensor<float>({1, 2, 2}, {0, 0, 0, 0});
  OneNode older("Softmax", 12, {x});
  EXPECT_RUNS(older);
  EXPECT_THAT(older.values(), Each(0.25));
  OneNode newer("Softmax", 13, {x});
  EXPECT_RUNS(newer);
  EXPECT_THAT(newer.values(), Each(0.5));
  OneNode hard("Hardmax", 12, {x});
  EXPECT_RUNS(hard);
  EXPECT_THAT(hard.values(), ElementsAre(1, 0, 0, 0));
}

TEST(MatrixTest, NothingToSumIsZero) {
  OneNode product("MatMul", 13, {counting({2, 0}), counting({0, 3})});
  EXPECT_RUNS(product);
  EXPECT_EQ(product.dims(), (Dims{2, 3}));
  EXPECT_THAT(product.values(), Each(0));
}

TEST(MatrixTest, HalvesAreSummedAsFloats) {
  // As halves, a sum of ones stays at 2048.
  const std::vector<Half> ones(4096, Half(1.0f));
  OneNode product("MatMul", 13, {tensor<Half>({1, 4096}, ones), tensor<Half>({4096, 1}, ones)});
  EXPECT_RUNS(product);
  EXPECT_THAT(product.values(), ElementsAre(4096));
  OneNode conv("Conv", 13, {tensor<Half>({1, 1, 4096}, ones), tensor<Half>({1, 1, 4096}, ones)});
  EXPECT_RUNS(conv);
  EXPECT_THAT(conv.values(), ElementsAre(4096));
  OneNode mean("GlobalAveragePool", 13, {tensor<Half>({1, 1, 4096}, ones)});
  EXPECT_RUNS(mean);
  EXPECT_THAT(mean.values(), ElementsAre(1));
}

TEST(MatrixTest, BatchesBroadcastAndVectorsLoseTheirDimension) {
  OneNode batches("MatMul", 13, {counting({2, 1, 1, 2}), counting({2, 2, 1})});
  EXPECT_RUNS(batches);
  EXPECT_EQ(batches.dims(), (Dims{2, 2, 1, 1}));
  EXPECT_THAT(batches.values(), ElementsAre(5, 11, 11, 25));
  OneNode vectors("MatMul", 13, {counting({3}), counting({3})});
  EXPECT_RUNS(vectors);
  EXPECT_THAT(vectors.dims(), IsEmpty());
  EXPECT_THAT(vectors.values(), ElementsAre(14));
}

TEST(MatrixTest, GemmNeedsCUntilOpset10) {
  EXPECT_EQ(OneNode("Gemm", 9, {counting({1, 1}), counting({1, 1})}).run().code(), Code::kInvalidArgument);
  OneNode gemm("Gemm", 11, {counting({1, 2}), counting({2, 1})});
  EXPECT_RUNS(gemm);
  OneNode wide("Gemm", 11, {counting({1, 2}), counting({2, 1}), counting({2, 1})});
  EXPECT_EQ(wide.run().code(), Code::kInvalidArgument);
}

TEST(QuantizeTest, RoundsHalvesToEvenAndSaturates) {
  OneNode quantize("QuantizeLinear", 13,
                   {tensor<float>({7}, {0.5f, 1.5f, 2.5f, -0.5f, 300, -300, NAN}), tensor<float>({}, {1}),
                    tensor<std::int8_t>({}, {1})});
  EXPECT_RUNS(quantize);
  EXPECT_THAT(quantize.values(), ElementsAre(1, 3, 3, 1, 127, -128, 1));
}

TEST(QuantizeTest, ScalesAlongAnAxis) {
  OneNode values(
      "DequantizeLinear", 13,
      {tensor<std::uint8_t>({2, 2}, {1, 2, 3, 4}), tensor<float>({2}, {10, 100}), tensor<std::uint8_t>({2}, {0, 1})});
  values.set("axis", std::int64_t{-2});
  EXPECT_RUNS(values);
  EXPECT_THAT(values.values(), ElementsAre(10, 20, 200, 300));
  OneNode older("DequantizeLinear", 10, {tensor<std::uint8_t>({2}, {1, 2}), tensor<float>({2}, {10, 100})});
  EXPECT_EQ(older.run().code(), Code::kInvalidArgument);
}

TEST(QuantizeTest, ProductsTakeZeroPointsOfRowsAndColumns) {
  OneNode product("MatMulInteger", 13,
                  {tensor<std::int8_t>({2, 1}, {-5, 5}), tensor<std::uint8_t>({1, 2}, {200, 255}),
                   tensor<std::int8_t>({2}, {0, 4}), tensor<std::uint8_t>({2}, {100, 250})});
  EXPECT_RUNS(product);
  EXPECT_THAT(product.values(), ElementsAre(-500, -25, 100, 5));
}

TEST(QuantizeTest, ConvolutionTakesAScaleForEachFilterAndABias) {
  OneNode conv("QLinearConv", 10,
               {tensor<std::uint8_t>({1, 1, 2}, {10, 20}), tensor<float>({}, {0.5f}), tensor<std::uint8_t>({}, {10}),
                tensor<std::int8_t>({2, 1, 1}, {2, 3}), tensor<float>({2}, {1, 2}), tensor<std::int8_t>({2}, {0, 1}),
                tensor<float>({}, {0.5f}), tensor<std::uint8_t>({}, {7}), tensor<std::int32_t>({2}, {1, -100})});
  EXPECT_RUNS(conv);
  EXPECT_THAT(conv.values(), ElementsAre(8, 28, 0, 0));
}

// ---- recurrence ----

OneNode lstm(const Tensor& x, const Tensor& lengths, const char* direction) {
  const std::int64_t directions = std::string(direction) == "bidirectional" ? 2 : 1;
  Floats w, r, b;
  for (std::int64_t d = 0; d < directions; ++d) {
    for (int i = 0; i < 8; ++i) {
      w.push_back(0.1f * static_cast<float>(i) - 0.3f);
      b.insert(b.end(), {0.05f, -0.02f});
      r.insert(r.end(), {0.2f, -0.1f * static_cast<float>(i)});
    }
  }
  OneNode node("LSTM", 14,
               {x, tensor(Dims{directions, 8, 1}, w), tensor(Dims{directions, 8, 2}, r),
                tensor(Dims{directions, 16}, b), lengths},
               3);
  node.set("hidden_size", std::int64_t{2}).set("direction", std::string(direction));
  return node;
}

TEST(RecurrentTest, ReverseIsForwardOnTheReversedSequence) {
  OneNode forward = lstm(tensor<float>({3, 1, 1}, {1, 2, 3}), {}, "forward");
  OneNode reverse = lstm(tensor<float>({3, 1, 1}, {3, 2, 1}), {}, "reverse");
  OneNode both = lstm(tensor<float>({3, 1, 1}, {1, 2, 3}), {}, "bidirectional");
  EXPECT_RUNS(forward);
  EXPECT_RUNS(reverse);
  EXPECT_RUNS(both);
  EXPECT_EQ(forward.values(1), reverse.values(1));
  EXPECT_EQ(forward.values(2), reverse.values(2));
  EXPECT_EQ(both.values(1).size(), 4u);
  EXPECT_EQ(both.values(1)[0], forward.values(1)[0]);
  const auto y = forward.values(0), back = reverse.values(0);
  EXPECT_EQ(y[0], back[4]);
  EXPECT_EQ(y[4], back[0]);
}

TEST(RecurrentTest, ShortSequencesEndInZerosAndKeepTheirLastState) {
  OneNode whole = lstm(tensor<float>({2, 1, 1}, {1, 2}), {}, "reverse");
  OneNode cut = lstm(tensor<float>({3, 1, 1}, {1, 2, 99}), tensor<std::int32_t>({1}, {2}), "reverse");
  EXPECT_RUNS(whole);
  EXPECT_RUNS(cut);
  EXPECT_EQ(cut.values(1), whole.values(1));
  EXPECT_THAT(std::vector<double>({cut.values(0)[4], cut.values(0)[5]}), Each(0));
  OneNode wrong = lstm(tensor<float>({3, 1, 1}, {1, 2, 99}), tensor<std::int32_t>({1}, {4}), "forward");
  EXPECT_EQ(wrong.run().code(), Code::kInvalidArgument);
}

OneNode rnn(const std::vector<std::string>& activations) {
  OneNode node("RNN", 14,
               {tensor<float>({1, 1, 1}, {3}), tensor<float>({1, 1, 1}, {2}), tensor<float>({1, 1, 1}, {1})});
  node.set("activations", activations);
  return node;
}

TEST(RecurrentTest, ClipsBeforeActivationsAndTakesTheirParameters) {
  OneNode affine = rnn({"Affine"});
  affine.set("activation_alpha", Floats{10}).set("activation_beta", Floats{1}).set("clip", 4.0f);
  EXPECT_RUNS(affine);
  EXPECT_THAT(affine.values(), ElementsAre(41));
  OneNode relu = rnn({"Relu"});
  EXPECT_RUNS(relu);
  EXPECT_THAT(relu.values(), ElementsAre(6));
  EXPECT_EQ(rnn({"Affine"}).run().code(), Code::kUnimplemented);
  EXPECT_EQ(rnn({"Swish"}).run().code(), Code::kUnimplemented);
  EXPECT_EQ(rnn({"Tanh"}).set("activation_alpha", Floats{1}).run().code(), Code::kUnimplemented);
  EXPECT_EQ(rnn({"Tanh", "Tanh"}).run().code(), Code::kUnimplemented);
}

// ---- Einsum ----

OneNode einsum(const char* equation, const std::vector<Tensor>& inputs) {
  OneNode node("Einsum", 12, inputs);
  node.set("equation", std::string(equation));
  return node;
}

TEST(EinsumTest, WithoutAnArrowLabelsGoByTheAlphabet) {
  OneNode product = einsum("kb, ak", {counting({2, 2}), counting({3, 2})});
  EXPECT_RUNS(product);
  EXPECT_EQ(product.dims(), (Dims{3, 2}));
  EXPECT_EQ(product.values()[0], 1 * 1 + 2 * 3);
  OneNode trace = einsum("ii", {counting({2, 2})});
  EXPECT_RUNS(trace);
  EXPECT_THAT(trace.values(), ElementsAre(5));
}

TEST(EinsumTest, EllipsesBroadcast) {
  OneNode product = einsum("...ij,...jk->...ik", {counting({2, 1, 1, 2}), counting({3, 2, 1})});
  EXPECT_RUNS(product);
  EXPECT_EQ(product.dims(), (Dims{2, 3, 1, 1}));
  EXPECT_THAT(product.values(), ElementsAre(5, 11, 17, 11, 25, 39));
}

TEST(EinsumTest, RefusesWhatIsNoEquation) {
  EXPECT_EQ(einsum("ij->ik", {counting({2, 2})}).run().code(), Code::kInvalidArgument);
  EXPECT_EQ(einsum("ij,jk->ik", {counting({2, 2})}).run().code(), Code::kInvalidArgument);
  EXPECT_EQ(einsum("ij->ii", {counting({2, 2})}).run().code(), Code::kInvalidArgument);
  EXPECT_EQ(einsum("i.j->ij", {counting({2, 2})}).run().code(), Code::kInvalidArgument);
  EXPECT_EQ(einsum("ii", {counting({2, 3})}).run().code(), Code::kInvalidArgument);
}

// ---- losses, dropout, normalisation ----

TEST(LossTest, ALabelOutOfRangeIsAnError) {
  OneNode loss("NegativeLogLikelihoodLoss", 13, {counting({1, 3}), tensor<std::int64_t>({1}, {3})});
  const Status status = loss.run();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("label 3 is outside [0, 3)"));
}

TEST(DropoutTest, TrainsOnlyWhereNothingIsDropped) {
  const Tensor training = test::tensor<std::uint8_t>(DType::kBool, {}, {1});
  EXPECT_EQ(OneNode("Dropout", 13, {counting({2}), tensor<float>({}, {0.5f}), training}).run().code(),
            Code::kUnimplemented);
  OneNode none("Dropout", 13, {counting({2}), tensor<float>({}, {0}), training}, 2);
  EXPECT_RUNS(none);
  EXPECT_THAT(none.values(0), ElementsAre(1, 2));
  EXPECT_THAT(none.values(1), ElementsAre(1, 1));
}

TEST(NormalizationTest, StatisticsAsResultsOnlyWhileTraining) {
  const Tensor one = tensor<float>({1}, {1}), zero = tensor<float>({1}, {0});
  EXPECT_EQ(OneNode("BatchNormalization", 14, {counting({1, 1, 2}), one, zero, zero, one}, 2).run().code(),
            Code::kUnimplemented);
  OneNode trained("BatchNormalization", 14, {counting({1, 1, 2}), one, zero, zero, one}, 3);
  trained.set("training_mode", std::int64_t{1}).set("momentum", 0.5f);
  EXPECT_RUNS(trained);
  EXPECT_THAT(trained.values(0), Pointwise(DoubleNear(1e-4), {-1.0, 1.0}));
  EXPECT_THAT(trained.values(1), ElementsAre(0.75));
  EXPECT_THAT(trained.values(2), ElementsAre(0.625));
}

TEST(NormalizationTest, TinyEpsilonsAndLargeMeansKeepTheirVariance) {
  OneNode layer("LayerNormalization", 17, {tensor<float>({1, 2}, {10000, 10001}), tensor<float>({2}, {1, 1})});
  layer.set("epsilon", 1e-12f);
  EXPECT_RUNS(layer);
  EXPECT_THAT(layer.values(), Pointwise(DoubleNear(1e-5), {-1.0, 1.0}));
}

TEST(NormalizationTest, ALineOfZerosStaysOne) {
  OneNode norm("LpNormalization", 13, {tensor<float>({2}, {0, 0})});
  EXPECT_RUNS(norm);
  EXPECT_THAT(norm.values(), Each(0));
}

}  // namespace
}  // namespace sluice::engine
