#include "ir/tensor.h"

#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

TEST(TensorBytesTest, RefusesWhatNoTensorCanBe) {
  EXPECT_EQ(*tensor_bytes(DType::kFloat, {2, 3}), 24u);
  EXPECT_EQ(*tensor_bytes(DType::kFloat, {}), 4u);
  EXPECT_EQ(*tensor_bytes(DType::kFloat, {0, 5}), 0u);
  EXPECT_EQ(tensor_bytes(DType::kFloat, {2, -1}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(tensor_bytes(DType::kString, {2}).status().code(), Code::kUnimplemented);
  EXPECT_EQ(tensor_bytes(DType::kFloat, Dims(kMaxRank + 1, 1)).status().code(), Code::kUnimplemented);
  EXPECT_EQ(tensor_bytes(DType::kFloat, {1ll << 40, 1ll << 40}).status().code(), Code::kResourceExhausted);
  // The product wraps to something small, or is hidden by a zero.
  EXPECT_EQ(tensor_bytes(DType::kFloat, {1ll << 32, 1ll << 32, 4}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(tensor_bytes(DType::kFloat, {0, 1ll << 62, 1ll << 62}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(tensor_bytes(DType::kFloat, {100}, 399).status().code(), Code::kResourceExhausted);
}

TEST(TensorTest, ReadsUnalignedElements) {
  auto bytes = Tensor::allocate(DType::kUint8, {9});
  ASSERT_TRUE(bytes.ok());
  const std::int64_t value = -7;
  std::memcpy(bytes->mutable_data() + 1, &value, sizeof(value));
  const Tensor view(DType::kInt64, {1}, bytes->owner(), bytes->data() + 1, 8);
  EXPECT_FALSE(view.aligned());
  EXPECT_EQ(view.as_int(0), -7);
  auto aligned = view.to_aligned();
  ASSERT_TRUE(aligned.ok());
  EXPECT_TRUE(aligned->aligned());
  EXPECT_EQ(aligned->as_int(0), -7);
}

TEST(TensorTest, HasItsOwnZeroedAlignedMemory) {
  auto tensor = Tensor::allocate(DType::kDouble, {3});
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor->data()) % 64, 0u);
  EXPECT_EQ(tensor->as_double(2), 0.0);
}

}  // namespace
}  // namespace sluice::engine
