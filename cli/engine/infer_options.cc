#include "infer_options.h"

#include <cmath>

#include "engine_verbs.h"
#include "sluice/base/status.h"

namespace sluice::cli {
namespace {

// What the parser fills; words that need a second look.
struct Words {
  std::string precision = "fp32", layout = "auto", order = "rgb", resize;
  std::vector<std::string> dims, shapes, passes_off;
  std::vector<double> mean, deviation;
  std::int64_t batch = 0;
  double tolerance = 0;
};

void add_options(CLI::App& app, InferOptions& options, Words& words) {
  app.add_option("MODEL", options.model, "An ONNX file");
  app.add_option("-i,--input", options.inputs.files,
                 "NAME=FILE: .npy, .npz, .png, .jpg; FILE alone where that is clear")
      ->allow_extra_args(false);
  app.add_flag("--random", options.inputs.random, "Draw the inputs that no --input gives");
  app.add_option("--seed", options.inputs.seed, "Of --random; default 0");
  app.add_option("-b,--batch", words.batch, "Size of open first dimensions; repeats a single sample")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  app.add_option("--dim", words.dims, "NAME=VALUE of another open dimension")->allow_extra_args(false);
  app.add_option("--shape", words.shapes, "INPUT=1x3x224x224, for --random")->allow_extra_args(false);
  app.add_option("-o,--output", options.output_files, "NAME=FILE.npy: write this output")->allow_extra_args(false);
  app.add_option("--outputs", options.outputs_npz, "FILE.npz: write all outputs");
  app.add_option("--device", options.engine.device, "cpu (default)");
  app.add_option("--precision", words.precision, "fp32 (default) or fp16");
  app.add_option("-t,--threads", options.engine.threads, "Threads of a run; default 0, one a physical core");
  app.add_flag("--bench", options.bench, "Measure latency, throughput and memory");
  app.add_option("--seconds", options.seconds, "Of --bench and --profile; default 3")->check(CLI::Range(0.0, 3600.0));
  app.add_option("--profile", options.profile, "FILE.html: time of each fused operator; FILE.json beside it");
  app.add_flag("--check", options.check, "Compare with the unfused FP32 model, tensor by tensor; 1 on drift");
  app.add_option("--tolerance", words.tolerance, "Of --check, relative L2 error; default 1e-4, fp16 2e-2");
  app.add_option("--passes-off", words.passes_off, "Leave passes out: " + pass_list())->allow_extra_args(false);
  app.add_flag("--print-passes", options.engine.print_passes, "Print the graph before and after each pass");
  app.add_option("--resize", words.resize, "HxW for images; default what the model fixes, else the image's own");
  app.add_option("--layout", words.layout, "nchw, nhwc or auto (default), for images");
  app.add_option("--order", words.order, "rgb (default) or bgr, for images");
  app.add_option("--scale", options.inputs.image.scale, "Factor for pixels of images; default 1/255");
  app.add_option("--mean", words.mean, "Taken from the scaled pixels; one, or one a channel: 0.485,0.456,0.406")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--std", words.deviation, "What is left is divided by this")->delimiter(',')->allow_extra_args(false);
  app.add_flag("--json", options.json, "As JSON; docs/infer.md has the keys");
}

Status read_image_words(const Words& words, ImageOptions& image) {
  if (!words.resize.empty()) {
    auto size = parse_shape(words.resize);
    if (!size.ok() || size->size() != 2 || (*size)[0] < 1 || (*size)[1] < 1 || (*size)[0] > 16384 ||
        (*size)[1] > 16384) {
      return Status::error(Code::kInvalidArgument, "'%.40s' is no size; write HEIGHTxWIDTH, such as 224x224",
                           words.resize.c_str());
    }
    image.size = {static_cast<int>((*size)[0]), static_cast<int>((*size)[1])};
  }
  using Layout = ImageOptions::Layout;
  if (words.layout != "auto" && words.layout != "nchw" && words.layout != "nhwc") {
    return Status::error(Code::kInvalidArgument, "there is no layout '%.40s'; use nchw, nhwc or auto",
                         words.layout.c_str());
  }
  image.layout = words.layout == "auto" ? Layout::kAuto : words.layout == "nchw" ? Layout::kNchw : Layout::kNhwc;
  if (words.order != "rgb" && words.order != "bgr") {
    return Status::error(Code::kInvalidArgument, "there is no order '%.40s'; use rgb or bgr", words.order.c_str());
  }
  image.bgr = words.order == "bgr";
  if (!words.mean.empty()) {
    image.mean = words.mean;
  }
  if (!words.deviation.empty()) {
    image.std = words.deviation;
  }
  for (const double value : image.std) {
    if (value == 0) {
      return Status::error(Code::kInvalidArgument, "--std is 0");
    }
  }
  return {};
}

Status read_words(const Words& words, InferOptions& options) {
  auto precision = parse_precision(words.precision);
  if (!precision.ok()) {
    return precision.status();
  }
  options.engine.precision = *precision;
  options.tolerance = words.tolerance > 0 ? words.tolerance : *precision == engine::Precision::kFp16 ? 2e-2 : 1e-4;
  options.engine.passes_off = split_commas(words.passes_off);
  if (words.batch > 0) {
    options.inputs.batch = words.batch;
  }
  auto dims = parse_dims(words.dims);
  if (!dims.ok()) {
    return dims.status();
  }
  options.inputs.dims = std::move(*dims);
  for (const std::string& text : words.shapes) {
    const std::size_t at = text.rfind('=');
    auto shape = parse_shape(at == std::string::npos ? "" : text.substr(at + 1));
    if (!shape.ok()) {
      return Status::error(Code::kInvalidArgument, "'%.60s' gives no shape; write INPUT=1x3x224x224", text.c_str());
    }
    options.inputs.shapes[text.substr(0, at)] = std::move(*shape);
  }
  return read_image_words(words, options.inputs.image);
}

}  // namespace

std::optional<int> parse_infer(std::vector<std::string> args, InferOptions& options) {
  Words words;
  CLI::App app("Runs an ONNX model once and shows its outputs, or measures it.", "infer");
  set_usage(app,
            "Usage: sluice infer MODEL.onnx --input NAME=FILE [OPTIONS]\n"
            "       sluice infer MODEL.onnx --random --bench [OPTIONS]");
  add_options(app, options, words);
  if (std::optional<int> code = parse(app, std::move(args))) return code;
  if (options.model.empty()) {
    return usage_error("infer", "no model; see sluice infer --help");
  }
  if (static_cast<int>(options.bench) + static_cast<int>(options.check) + static_cast<int>(!options.profile.empty()) >
      1) {
    return usage_error("infer", "--bench, --check and --profile are one at a time");
  }
  if (Status status = read_words(words, options); !status.ok()) {
    return refuse("infer", status);
  }
  return std::nullopt;
}

}  // namespace sluice::cli
