#include "inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "npy.h"
#include "npz.h"
#include "test_files.h"

namespace sluice::cli {
namespace {

using engine::Dims;
using engine::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

engine::TensorSpec spec(const std::string& name, Dims dims, std::vector<std::string> symbols = {},
                        DType dtype = DType::kFloat) {
  engine::TensorSpec input;
  input.name = name;
  input.dtype = dtype;
  input.has_rank = true;
  input.dims = std::move(dims);
  input.symbols = std::move(symbols);
  return input;
}

InputOptions random() {
  InputOptions options;
  options.random = true;
  return options;
}

std::string error(const std::vector<engine::TensorSpec>& specs, const InputOptions& options) {
  return gather_inputs(specs, options).status().message();
}

TEST(ParseShape, TakesBothSigns) {
  EXPECT_EQ(*parse_shape("1x3x224"), (Dims{1, 3, 224}));
  EXPECT_EQ(*parse_shape("1,0"), (Dims{1, 0}));
  for (const char* wrong : {"", "x", "1x", "1xx2", "-1", "1 2", "a", "99999999999999999999"}) {
    EXPECT_FALSE(parse_shape(wrong).ok()) << wrong;
  }
}

TEST(RandomArray, DependsOnSeedAndNameOnly) {
  const auto draw = [](const char* name, std::uint64_t seed, DType dtype) {
    return engine::to_doubles(random_array(name, dtype, {64}, seed)->view());
  };
  EXPECT_EQ(draw("x", 0, DType::kFloat), draw("x", 0, DType::kFloat));
  EXPECT_NE(draw("x", 0, DType::kFloat), draw("x", 1, DType::kFloat));
  EXPECT_NE(draw("x", 0, DType::kFloat), draw("y", 0, DType::kFloat));
  EXPECT_EQ(draw("x", 0, DType::kFloat), draw("x", 0, DType::kDouble));
}

TEST(RandomArray, StaysInItsRange) {
  for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16}) {
    for (const double value : engine::to_doubles(random_array("x", dtype, {1000}, 7)->view())) {
      EXPECT_GE(value, -1);
      EXPECT_LT(value, 1);
    }
  }
  for (const DType dtype : {DType::kInt64, DType::kUint8, DType::kBool, DType::kInt16}) {
    const auto values = engine::to_doubles(random_array("x", dtype, {1000}, 7)->view());
    EXPECT_EQ(std::count(values.begin(), values.end(), 0) + std::count(values.begin(), values.end(), 1), 1000);
    EXPECT_GT(std::count(values.begin(), values.end(), 1), 400);
  }
}

TEST(GatherInputs, ResolvesOpenDimensions) {
  const std::vector<engine::TensorSpec> specs = {spec("ids", {-1, -1}, {"N", "length"}, DType::kInt64),
                                                 spec("mask", {1, -1, 4}, {"", "N", ""})};
  InputOptions options = random();
  options.batch = 2;
  EXPECT_THAT(error(specs, options), HasSubstr("dimension 1 of input 'ids' (Nxlength) is open; use --dim length=N"));
  options.dims["length"] = 5;
  auto inputs = gather_inputs(specs, options);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ(inputs->arrays[0].dims, (Dims{2, 5}));
  EXPECT_EQ(inputs->arrays[1].dims, (Dims{1, 2, 4})) << "the batch dimension's name stands here too";
  EXPECT_EQ(inputs->batch, 2);
  options.shapes["mask"] = {1, 3, 4};
  EXPECT_EQ(gather_inputs(specs, options)->arrays[1].dims, (Dims{1, 3, 4}));
  options.shapes["maks"] = {1};
  EXPECT_THAT(error(specs, options), HasSubstr("no input 'maks'; did you mean mask?"));
}

TEST(GatherInputs, SaysWhatIsMissing) {
  EXPECT_THAT(error({spec("x", {-1, 3}, {"N", ""})}, {}), HasSubstr("no value for input 'x' (float Nx3); add --input"));
  EXPECT_THAT(error({spec("x", {1, -1})}, random()), HasSubstr("use --shape x=N"));
  auto decides = spec("shape", {2}, {}, DType::kInt64);
  decides.decides_shapes = true;
  EXPECT_THAT(error({decides}, random()), HasSubstr("decides shapes"));
  auto any = spec("x", {});
  any.has_rank = false;
  EXPECT_THAT(error({any}, random()), HasSubstr("use --shape"));
}

class FilesTest : public ::testing::Test {
 protected:
  std::string npy(const std::string& name, const Array& array) {
    EXPECT_TRUE(write_npy_file(folder_.path(name), array.view()).ok());
    return folder_.path(name);
  }
  test::Folder folder_;
  const Array one_ = *random_array("one", DType::kFloat, {1, 3}, 1);
};

TEST_F(FilesTest, FilesGoToTheirInputs) {
  const std::string path = npy("x.npy", one_);
  const std::vector<engine::TensorSpec> single = {spec("a=b", {-1, 3}, {"N", ""})};
  InputOptions options;
  for (const std::string& file : {path, "a=b=" + path}) {
    options.files = {file};
    auto inputs = gather_inputs(single, options);
    ASSERT_TRUE(inputs.ok()) << inputs.status().message();
    EXPECT_EQ(inputs->arrays[0].data, one_.data);
  }
  options.files = {path};
  EXPECT_THAT(error({spec("x", {1, 3}), spec("y", {1, 3})}, options), HasSubstr("say which one"));
  options.files = {"z=" + path};
  EXPECT_THAT(error({spec("x", {1, 3}), spec("y", {1, 3})}, options), HasSubstr("no input 'z'"));
}

TEST_F(FilesTest, ArchivesGiveInputsByName) {
  const std::string path = folder_.path("in.npz");
  ASSERT_TRUE(write_npz_file(path, {{"x", one_.view()}, {"y", one_.view()}}).ok());
  InputOptions options;
  options.files = {path};
  auto inputs = gather_inputs({spec("x", {1, 3}), spec("y", {1, 3})}, options);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ(inputs->arrays[1].data, one_.data);
  EXPECT_THAT(error({spec("x", {1, 3})}, options), HasSubstr("no input 'y'"));
  options.files = {"y=" + path};
  EXPECT_TRUE(gather_inputs({spec("y", {1, 3})}, options).ok());
  options.files = {"z=" + path};
  EXPECT_THAT(error({spec("z", {1, 3})}, options), HasSubstr("has no array 'z'"));
}

TEST_F(FilesTest, ASampleIsRepeatedToTheBatch) {
  InputOptions options;
  options.files = {npy("x.npy", one_)};
  options.batch = 3;
  auto inputs = gather_inputs({spec("x", {-1, 3})}, options);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ(inputs->arrays[0].dims, (Dims{3, 3}));
  EXPECT_EQ(inputs->batch, 3);
  const auto values = engine::to_doubles(inputs->arrays[0].view()), once = engine::to_doubles(one_.view());
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(values[i], once[i % 3]);
  options.files = {npy("two.npy", *random_array("x", DType::kFloat, {2, 3}, 1))};
  EXPECT_THAT(error({spec("x", {-1, 3})}, options), HasSubstr("holds a batch of 2, and --batch asks for 3"));
}

}  // namespace
}  // namespace sluice::cli
