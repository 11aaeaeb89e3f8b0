#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "import/import.h"
#include "import/wire.h"
#include "testing/model_builder.h"

namespace sluice::engine {
namespace {

using test::add_floats;
using test::add_node;
using test::Folder;
using test::make_model;

class LimitsTest : public ::testing::Test {
 protected:
  Code import(const std::string& bytes, const Limits& limits = {}) {
    return import_onnx(folder_.write("m.onnx", bytes), limits).status().code();
  }
  Folder folder_;
};

std::string small_model() {
  auto model = make_model();
  add_floats(model, "w", std::vector<float>(1000, 1.0f));
  add_node(model, "Neg", {"x"}, {"y"});
  return model.SerializeAsString();
}

TEST_F(LimitsTest, EveryTruncationIsRefused) {
  const std::string whole = small_model();
  ASSERT_EQ(import(whole), Code::kOk);
  for (std::size_t size = 0; size < whole.size(); size += size < 200 ? 1 : 97) {
    EXPECT_EQ(import(whole.substr(0, size)), Code::kInvalidArgument) << size;
  }
}

TEST_F(LimitsTest, EachLimitHolds) {
  const std::string model = small_model();
  const auto with = [](auto set) {
    Limits limits;
    set(limits);
    return limits;
  };
  EXPECT_EQ(import(model, with([&](Limits& l) { l.file_bytes = model.size(); })), Code::kOk);
  EXPECT_EQ(import(model, with([&](Limits& l) { l.file_bytes = model.size() - 1; })), Code::kResourceExhausted);
  EXPECT_EQ(import(model, with([](Limits& l) { l.structure_bytes = 20; })), Code::kResourceExhausted);
  EXPECT_EQ(import(model, with([](Limits& l) { l.elements = 5; })), Code::kResourceExhausted);
  EXPECT_EQ(import(model, with([](Limits& l) { l.depth = 3; })), Code::kResourceExhausted);
  EXPECT_EQ(import(model, with([](Limits& l) { l.nodes = 0; })), Code::kResourceExhausted);
  EXPECT_EQ(import(model, with([](Limits& l) { l.tensors = 0; })), Code::kResourceExhausted);
  EXPECT_EQ(import(model, with([](Limits& l) { l.tensor_bytes = 3999; })), Code::kResourceExhausted);
}

TEST_F(LimitsTest, ATensorIsNotAllocatedForDataThatIsNotThere) {
  for (const bool raw : {true, false}) {
    auto model = make_model();
    auto* tensor = add_floats(model, "w", {1});
    tensor->set_dims(0, 1ll << 30);
    if (!raw) {
      tensor->clear_raw_data();
      tensor->add_float_data(1);
    }
    add_node(model, "Neg", {"x"}, {"y"});
    EXPECT_EQ(import(model.SerializeAsString()), Code::kInvalidArgument);
  }
}

TEST_F(LimitsTest, OverflowingShapesAreRefused) {
  auto model = make_model();
  auto* tensor = add_floats(model, "w", {});
  tensor->set_dims(0, 1ll << 62);
  tensor->add_dims(4);
  add_node(model, "Neg", {"x"}, {"y"});
  EXPECT_EQ(import(model.SerializeAsString()), Code::kResourceExhausted);
  tensor->set_dims(0, -1);
  EXPECT_EQ(import(model.SerializeAsString()), Code::kInvalidArgument);
}

TEST_F(LimitsTest, WhatIsNoFileIsRefused) {
  EXPECT_EQ(import_onnx(folder_.path("missing.onnx").string(), {}).status().code(), Code::kNotFound);
  EXPECT_EQ(import_onnx(folder_.path("").string(), {}).status().code(), Code::kInvalidArgument);
  ASSERT_EQ(mkfifo(folder_.path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(import_onnx(folder_.path("pipe").string(), {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(import("not a model at all"), Code::kInvalidArgument);
  EXPECT_EQ(import(""), Code::kInvalidArgument);
}

TEST(SlimModelTest, WhatLooksLikeAMarkerIsNone) {
  // The nonce of one model means nothing in another one.
  const std::string model = small_model();
  auto first = slim_model(std::as_bytes(std::span(model)), {});
  auto second = slim_model(std::as_bytes(std::span(model)), {});
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_EQ(first->extents.size(), 1u);
  EXPECT_LT(first->proto.size(), model.size() - 3900);
  const std::string marker = first->nonce + '\0';
  EXPECT_EQ(first->resolve(marker).size(), 4000u);
  EXPECT_EQ(second->resolve(marker).size(), marker.size());
}

}  // namespace
}  // namespace sluice::engine
