#include "npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "npz.h"
#include "test_files.h"

namespace sluice::cli {
namespace {

using engine::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Array floats(engine::Dims dims, std::vector<float> values) {
  Array array{DType::kFloat, std::move(dims), std::vector<std::byte>(values.size() * sizeof(float))};
  if (!values.empty()) std::memcpy(array.data.data(), values.data(), array.data.size());
  return array;
}

std::vector<double> values(const Array& array) { return engine::to_doubles(array.view()); }

// A file of version 1 with this header and this many bytes of zeros.
std::string npy(const std::string& header, std::size_t bytes) {
  const std::string text = header + "\n";
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(text.size() & 0xff) +
         static_cast<char>(text.size() >> 8) + text + std::string(bytes, '\0');
}

Result<Array> parse(const std::string& bytes) {
  std::size_t at = 0;
  return read_npy(
      [&](char* to, std::size_t size) {
        const std::size_t got = bytes.copy(to, size, at);
        at += got;
        return got;
      },
      bytes.size());
}

std::string error(const std::string& bytes) { return parse(bytes).status().message(); }

TEST(Npy, WhatIsWrittenIsReadBack) {
  const test::Folder folder;
  for (const engine::Dims& dims : {engine::Dims{}, {1}, {3}, {2, 3}, {2, 0, 3}, {1, 2, 1, 2}}) {
    const Array array = floats(dims, std::vector<float>(static_cast<std::size_t>(engine::element_count(dims)), 1.5f));
    ASSERT_TRUE(write_npy_file(folder.path("a.npy"), array.view()).ok());
    EXPECT_EQ((test::read_file(folder.path("a.npy")).size() - array.data.size()) % 64, 0u);
    auto back = read_npy_file(folder.path("a.npy"));
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(back->dims, dims);
    EXPECT_EQ(back->dtype, DType::kFloat);
    EXPECT_EQ(back->data, array.data);
  }
}

TEST(Npy, WritesWhatNumPyWrites) {
  EXPECT_EQ(npy_header(DType::kInt64, {3})->substr(10),
            "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }" + std::string(60, ' ') + "\n");
  EXPECT_THAT(*npy_header(DType::kFloat16, {2, 3}), HasSubstr("'<f2', 'fortran_order': False, 'shape': (2, 3), }"));
  EXPECT_THAT(*npy_header(DType::kBool, {}), HasSubstr("'|b1', 'fortran_order': False, 'shape': (), }"));
  EXPECT_EQ(npy_header(DType::kBFloat16, {}).status().code(), Code::kUnimplemented);
}

TEST(Npy, ReadsEveryType) {
  const std::pair<const char*, DType> types[] = {
      {"|b1", DType::kBool},   {"|u1", DType::kUint8}, {"<i2", DType::kInt16}, {"<f2", DType::kFloat16},
      {"<u4", DType::kUint32}, {"<i8", DType::kInt64}, {"<f8", DType::kDouble}};
  for (const auto& [name, dtype] : types) {
    auto array = parse(npy("{'descr': '" + std::string(name) + "', 'fortran_order': False, 'shape': (2,), }",
                           2 * engine::dtype_bytes(dtype)));
    ASSERT_TRUE(array.ok()) << name << ": " << array.status().message();
    EXPECT_EQ(array->dtype, dtype);
    EXPECT_THAT(values(*array), ElementsAre(0, 0));
  }
}

TEST(Npy, RefusesWhatItDoesNotRead) {
  EXPECT_THAT(error("PNG"), HasSubstr("does not begin as one"));
  EXPECT_THAT(error(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }", 8)), HasSubstr("Fortran order"));
  EXPECT_THAT(error(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", 8)),
              HasSubstr("'>f4' is not supported"));
  EXPECT_THAT(error(npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", 8)), HasSubstr("not supported"));
  EXPECT_THAT(error(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", 8)),
              HasSubstr("records"));
  EXPECT_THAT(error(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, x), }", 8)),
              HasSubstr("no list of numbers"));
  EXPECT_THAT(error(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2", 8)), HasSubstr("no shape"));
  EXPECT_THAT(error(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", 8)),
              HasSubstr("a dimension of -2"));
}

TEST(Npy, SizesAreCheckedBeforeMemoryIsTaken) {
  EXPECT_THAT(error(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", 8)),
              HasSubstr("takes 12 bytes behind the header, and there are 8"));
  EXPECT_THAT(error(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 8)), HasSubstr("there are 8"));
  EXPECT_THAT(error(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }", 8)),
              HasSubstr("limit"));
  EXPECT_THAT(error(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 8)),
              HasSubstr("limit"));
}

TEST(Npz, WhatIsWrittenIsReadBack) {
  const test::Folder folder;
  const Array a = floats({2}, {1, 2}), b = floats({1, 1}, {3});
  const std::string path = folder.path("a.npz");
  ASSERT_TRUE(write_npz_file(path, {{"a", a.view()}, {"b/c:0", b.view()}}).ok());
  auto back = read_npz_file(path);
  ASSERT_TRUE(back.ok()) << back.status().message();
  ASSERT_EQ(back->size(), 2u);
  EXPECT_THAT(values(back->at("a")), ElementsAre(1, 2));
  EXPECT_EQ(back->at("b/c:0").dims, (engine::Dims{1, 1}));
}

TEST(Npz, RefusesDamage) {
  const test::Folder folder;
  const Array a = floats({2}, {1, 2});
  const std::string path = folder.path("a.npz");
  ASSERT_TRUE(write_npz_file(path, {{"a", a.view()}}).ok());
  const std::string bytes = test::read_file(path);
  std::string flipped = bytes;
  flipped[bytes.find("\x93NUMPY") + 130] ^= 1;  // a value; the checksum knows
  EXPECT_THAT(read_npz_file(folder.write("b.npz", flipped)).status().message(), HasSubstr("array 'a'"));
  EXPECT_FALSE(read_npz_file(folder.write("c.npz", bytes.substr(0, bytes.size() / 2))).ok());
  EXPECT_THAT(read_npz_file(folder.write("d.npz", "no zip")).status().message(), HasSubstr("no .npz file"));
  EXPECT_EQ(read_npz_file(folder.path("none.npz")).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace sluice::cli
