// Small ONNX files for tests.
#pragma once

#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace sluice::engine::test {

// A folder of its own that goes with the object.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "sluice_engine_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::filesystem::path path(const std::string& name) const { return path_ / name; }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name).string();
  }

 private:
  std::filesystem::path path_;
};

// x: float[N, 4] and y = whatever nodes say; opset 13.
inline onnx::ModelProto make_model() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(13);
  auto* graph = model.mutable_graph();
  graph->set_name("g");
  for (const bool input : {true, false}) {
    auto* info = input ? graph->add_input() : graph->add_output();
    info->set_name(input ? "x" : "y");
    auto* type = info->mutable_type()->mutable_tensor_type();
    type->set_elem_type(onnx::TensorProto::FLOAT);
    type->mutable_shape()->add_dim()->set_dim_param("N");
    type->mutable_shape()->add_dim()->set_dim_value(4);
  }
  return model;
}

inline onnx::NodeProto* add_node(onnx::ModelProto& model, const char* op, const std::vector<std::string>& inputs,
                                 const std::vector<std::string>& outputs) {
  auto* node = model.mutable_graph()->add_node();
  node->set_op_type(op);
  node->set_name(std::string("n_") + op);
  for (const std::string& name : inputs) {
    node->add_input(name);
  }
  for (const std::string& name : outputs) {
    node->add_output(name);
  }
  return node;
}

inline onnx::TensorProto* add_floats(onnx::ModelProto& model, const char* name, const std::vector<float>& values) {
  auto* tensor = model.mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  tensor->add_dims(static_cast<std::int64_t>(values.size()));
  tensor->set_raw_data(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  return tensor;
}

}  // namespace sluice::engine::test
