#include "images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <turbojpeg.h>

#include "test_files.h"

namespace sluice::cli {
namespace {

using engine::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Red, green over blue, white; each of `width` / 2 by `height` / 2 pixels.
std::vector<unsigned char> quarters(int height, int width) {
  std::vector<unsigned char> rgb;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const bool low = y >= height / 2, right = x >= width / 2;
      for (const bool on : {low == right, right, low}) rgb.push_back(on ? 255 : 0);
    }
  }
  return rgb;
}

class ImagesTest : public ::testing::Test {
 protected:
  std::string write_png(int height, int width) {
    png_image image = {};
    image.version = PNG_IMAGE_VERSION;
    image.width = static_cast<unsigned>(width);
    image.height = static_cast<unsigned>(height);
    image.format = PNG_FORMAT_RGB;
    const std::string path = folder_.path("image.png");
    EXPECT_NE(png_image_write_to_file(&image, path.c_str(), 0, quarters(height, width).data(), 0, nullptr), 0);
    return path;
  }
  std::string write_jpeg(int height, int width) {
    const std::vector<unsigned char> rgb = quarters(height, width);
    tjhandle encoder = tjInitCompress();
    unsigned char* bytes = nullptr;
    unsigned long size = 0;
    EXPECT_EQ(tjCompress2(encoder, rgb.data(), width, 0, height, TJPF_RGB, &bytes, &size, TJSAMP_444, 95, 0), 0);
    const std::string path = folder_.write("image.jpg", {reinterpret_cast<char*>(bytes), size});
    tjFree(bytes);
    tjDestroy(encoder);
    return path;
  }
  static std::vector<double> read(const std::string& path, const engine::TensorSpec& spec,
                                  const ImageOptions& options) {
    auto array = read_image(path, spec, options);
    EXPECT_TRUE(array.ok()) << array.status().message();
    return array.ok() ? engine::to_doubles(array->view()) : std::vector<double>();
  }
  static engine::TensorSpec input(engine::Dims dims, DType dtype = DType::kFloat) {
    engine::TensorSpec spec;
    spec.name = "x";
    spec.dtype = dtype;
    spec.has_rank = true;
    spec.dims = std::move(dims);
    return spec;
  }
  test::Folder folder_;
};

TEST_F(ImagesTest, LayoutsAndOrders) {
  const std::string path = write_png(2, 2);
  EXPECT_TRUE(is_image(path));
  ImageOptions options;
  EXPECT_THAT(read(path, input({-1, 3, -1, -1}), options), ElementsAre(1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1));
  EXPECT_THAT(read(path, input({1, 2, 2, 3}), options), ElementsAre(1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1));
  options.bgr = true;
  EXPECT_THAT(read(path, input({1, 3, 2, 2}), options), ElementsAre(0, 0, 1, 1, 0, 1, 0, 1, 1, 0, 0, 1));
}

TEST_F(ImagesTest, ScaleMeanAndDeviation) {
  const std::string path = write_png(2, 2);
  ImageOptions options;
  options.mean = {0.5, 0, 0};
  options.std = {0.5, 1, 2};
  EXPECT_THAT(read(path, input({1, 3, 2, 2}), options), ElementsAre(1, -1, -1, 1, 0, 1, 0, 1, 0, 0, 0.5, 0.5));
  options.mean = {0, 0};
  EXPECT_THAT(read_image(path, input({1, 3, 2, 2}), options).status().message(),
              HasSubstr("2 values of --mean or --std"));
}

TEST_F(ImagesTest, BytesStayBytes) {
  EXPECT_THAT(read(write_png(2, 2), input({1, 3, 2, 2}, DType::kUint8), {}),
              ElementsAre(255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255));
}

TEST_F(ImagesTest, ResizesBilinearlyToWhatTheModelFixes) {
  const std::string path = write_png(2, 2);
  ImageOptions options;
  const auto one = read(path, input({1, 3, 1, 1}), options);
  EXPECT_THAT(one, ElementsAre(0.5, 0.5, 0.5));
  options.size = {1, 4};
  const auto wide = read(path, input({1, 3, -1, -1}), options);
  ASSERT_EQ(wide.size(), 12u);
  EXPECT_EQ(wide[4], 0.0 * 0.5 + 0.0) << "green at the left edge";
  EXPECT_FLOAT_EQ(static_cast<float>(wide[5]), 0.25f);
  EXPECT_FLOAT_EQ(static_cast<float>(wide[6]), 0.75f);
}

TEST_F(ImagesTest, ReadsJpeg) {
  const std::string path = write_jpeg(32, 32);
  EXPECT_TRUE(is_image(path));
  ImageOptions options;
  options.size = {2, 2};
  const auto values = read(path, input({1, 3, -1, -1}), options);
  const double expected[] = {1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1};
  ASSERT_EQ(values.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(values[i], expected[i], 0.05) << i;
}

TEST_F(ImagesTest, RefusesWhatIsNoImageOrDoesNotFit) {
  const std::string path = write_png(2, 2);
  const std::string bytes = test::read_file(path);
  EXPECT_FALSE(is_image(folder_.write("text", "text")));
  EXPECT_FALSE(is_image(folder_.path("none")));
  EXPECT_THAT(read_image(folder_.write("cut.png", bytes.substr(0, 40)), input({1, 3, 2, 2}), {}).status().message(),
              HasSubstr("a damaged PNG"));
  EXPECT_THAT(
      read_image(folder_.write("cut.jpg", "\xff\xd8\xff\xe0 no more"), input({1, 3, 2, 2}), {}).status().message(),
      HasSubstr("a damaged JPEG"));
  EXPECT_THAT(read_image(path, input({1, 3}), {}).status().message(), HasSubstr("NxCxHxW"));
  EXPECT_THAT(read_image(path, input({1, 3, 2, 2}, DType::kInt64), {}).status().message(), HasSubstr("is int64"));
  EXPECT_EQ(read_image(folder_.path("none"), input({1, 3, 2, 2}), {}).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace sluice::cli
