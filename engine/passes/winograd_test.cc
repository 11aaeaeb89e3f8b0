#include "testing/graph_fixture.h"

namespace sluice::engine {
namespace {

class WinogradTest : public test::GraphFixture {
 protected:
  WinogradTest() { context_.device = "cpu"; }
  // A convolution of 3 x 3 of blocked tensors, with the padding of `pads`.
  void convolution(Dims x, std::int64_t filters, std::vector<std::int64_t> pads, const char* activation = "none",
                   bool residual = false) {
    graph_ = {};
    const std::int64_t channels = x[1];
    const ValueId in = input("x", std::move(x));
    std::vector<ValueId> inputs = {in, weights({filters, channels, 3, 3}, -0.3f, 0.3f), weights({filters})};
    if (residual) {
      inputs.push_back(in);
    }
    output(node("FusedConv", std::move(inputs), {ints_attribute("pads", std::move(pads))}));
    graph_.nodes.back().domain = kOwnDomain;
    graph_.nodes.back().set("activation", std::string(activation));
    EXPECT_EQ(apply("layout", 1e-5, context_), 1u);
  }
  // Sets it to Winograd's algorithm, and expects what the direct one computes.
  void expect_same_as_direct() {
    const auto direct = outputs_of(graph_);
    for (Node& made : graph_.nodes) {
      if (made.op == "BlockedConv") {
        made.set("winograd", std::int64_t{1});
      }
    }
    const auto tiled = outputs_of(graph_);
    ASSERT_EQ(direct.size(), tiled.size());
    ASSERT_EQ(direct[0].size(), tiled[0].size());
    double difference = 0, size = 1e-30;
    bool alike = true;
    for (std::size_t i = 0; i < direct[0].size(); ++i) {
      difference += (direct[0][i] - tiled[0][i]) * (direct[0][i] - tiled[0][i]);
      size += direct[0][i] * direct[0][i];
      alike = alike && direct[0][i] == tiled[0][i];
    }
    EXPECT_LT(std::sqrt(difference / size), 2e-6) << to_text(graph_);
    EXPECT_FALSE(alike) << "the direct algorithm computed both";
  }
  // How many convolutions the pass chose.
  std::size_t choose() {
    for (const Pass& pass : passes()) {
      if (std::string_view(pass.name) == "winograd") {
        auto changes = pass.run(graph_, context_);
        EXPECT_TRUE(changes.ok()) << changes.status().message();
        return changes.ok() ? *changes : 0;
      }
    }
    ADD_FAILURE() << "there is no such pass";
    return 0;
  }
  PassContext context_;
};

TEST_F(WinogradTest, ComputesAnyShapeThatItMayBeGiven) {
  struct Case {
    Dims x;
    std::int64_t filters;
    std::vector<std::int64_t> pads;
  };
  const std::vector<Case> cases = {
      {{1, 8, 4, 4}, 8, {1, 1, 1, 1}},     {{1, 8, 1, 1}, 16, {1, 1, 1, 1}},   {{2, 16, 9, 11}, 24, {1, 1, 1, 1}},
      {{3, 8, 7, 7}, 40, {0, 0, 0, 0}},    {{1, 24, 10, 5}, 16, {2, 2, 2, 2}}, {{1, 16, 6, 13}, 8, {0, 2, 3, 1}},
      {{5, 64, 14, 14}, 48, {1, 1, 1, 1}}, {{1, 8, 61, 62}, 8, {1, 1, 1, 1}},  {{2, 200, 6, 6}, 72, {1, 1, 1, 1}},
  };
  for (const Case& at : cases) {
    convolution(at.x, at.filters, at.pads);
    expect_same_as_direct();
  }
}

TEST_F(WinogradTest, AppliesResidualsAndActivations) {
  for (const char* activation : {"none", "relu", "silu", "clip", "hard_swish"}) {
    for (const bool residual : {false, true}) {
      convolution({2, 16, 10, 9}, 16, {1, 1, 1, 1}, activation, residual);
      expect_same_as_direct();
    }
  }
}

TEST_F(WinogradTest, IsChosenWhereItIsFaster) {
  convolution({1, 64, 56, 56}, 64, {1, 1, 1, 1});
  EXPECT_EQ(choose(), 1u);
  EXPECT_EQ(first("BlockedConv").get_int("winograd", 0), 1);
}

TEST_F(WinogradTest, IsNotChosenForOtherWindowsOrFewPixels) {
  convolution({1, 64, 7, 7}, 64, {1, 1, 1, 1});  // more weights to read than products to save
  EXPECT_EQ(choose(), 0u);
  for (const char* attribute : {"strides", "dilations"}) {
    graph_ = {};
    const ValueId x = input("x", {1, 16, 40, 40});
    output(node("Conv", {x, weights({16, 16, 3, 3})}, {ints_attribute(attribute, {2, 2})}));
    EXPECT_EQ(apply("layout", 1e-5, context_), 1u);
    EXPECT_EQ(choose(), 0u);
  }
}

}  // namespace
}  // namespace sluice::engine
