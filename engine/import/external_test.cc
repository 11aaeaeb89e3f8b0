#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "import/import.h"
#include "testing/model_builder.h"

namespace sluice::engine {
namespace {

using test::add_node;
using test::Folder;
using test::make_model;

class ExternalDataTest : public ::testing::Test {
 protected:
  ExternalDataTest() {
    std::filesystem::create_directory(folder_.path("model"));
    std::filesystem::create_directory(folder_.path("model/data"));
    const float values[] = {0, 1, 2, 3, 4, 5};
    const std::string bytes(reinterpret_cast<const char*>(values), sizeof(values));
    folder_.write("model/w.bin", bytes);
    folder_.write("model/data/w.bin", bytes);
    folder_.write("secret.bin", bytes);
  }

  Result<Graph> import(const std::vector<std::pair<std::string, std::string>>& entries, const Limits& limits = {}) {
    auto model = make_model();
    auto* tensor = model.mutable_graph()->add_initializer();
    tensor->set_name("w");
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    tensor->add_dims(4);
    tensor->set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : entries) {
      auto* entry = tensor->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    add_node(model, "Add", {"x", "w"}, {"y"});
    return import_onnx(folder_.write("model/m.onnx", model.SerializeAsString()), limits);
  }
  Code code(const std::vector<std::pair<std::string, std::string>>& entries, const Limits& limits = {}) {
    return import(entries, limits).status().code();
  }
  Folder folder_;
};

TEST_F(ExternalDataTest, ReadsBesideAndBeneathTheModel) {
  for (const char* location : {"w.bin", "data/w.bin", "data/../w.bin"}) {
    auto graph = import({{"location", location}, {"offset", "8"}, {"length", "16"}});
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    EXPECT_EQ(graph->values[0].constant->as_double(0), 2.0);
    EXPECT_EQ(graph->values[0].constant->as_double(3), 5.0);
  }
}

TEST_F(ExternalDataTest, NeverLeavesTheModelsDirectory) {
  EXPECT_EQ(code({{"location", "../secret.bin"}}), Code::kPermissionDenied);
  EXPECT_EQ(code({{"location", folder_.path("secret.bin").string()}}), Code::kPermissionDenied);
  EXPECT_EQ(code({{"location", "data/../../secret.bin"}}), Code::kPermissionDenied);
  std::filesystem::create_symlink("../secret.bin", folder_.path("model/link.bin"));
  EXPECT_EQ(code({{"location", "link.bin"}}), Code::kPermissionDenied);
  std::filesystem::create_directory_symlink("..", folder_.path("model/up"));
  EXPECT_EQ(code({{"location", "up/secret.bin"}}), Code::kPermissionDenied);
  EXPECT_EQ(code({}), Code::kPermissionDenied);
}

TEST_F(ExternalDataTest, ChecksSizesAgainstTheFile) {
  EXPECT_EQ(code({{"location", "w.bin"}, {"offset", "12"}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"location", "w.bin"}, {"offset", "18446744073709551615"}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"location", "w.bin"}, {"offset", "-8"}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"location", "w.bin"}, {"length", "12"}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"location", "w.bin"}, {"compression", "zstd"}}), Code::kUnimplemented);
  EXPECT_EQ(code({{"location", "missing.bin"}}), Code::kNotFound);
  EXPECT_EQ(code({{"location", "data"}}), Code::kInvalidArgument);
  Limits limits;
  limits.external_bytes = 23;
  EXPECT_EQ(code({{"location", "w.bin"}}, limits), Code::kResourceExhausted);
}

}  // namespace
}  // namespace sluice::engine
