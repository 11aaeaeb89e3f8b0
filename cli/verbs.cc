#include "verbs.h"

namespace sluice::cli {

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all = {
      {"run", "run a command, or the jobs of a file, sharing the GPU by priority", &run_verb},
      {"ps", "list the jobs", &ps_verb},
      {"top", "watch the GPUs and the jobs", &top_verb},
      {"stop", "end jobs", &stop_verb},
      {"doctor", "say what is wrong with the GPUs and the machine, and what to do", &doctor_verb},
      {"infer", "run an ONNX model, measure it, or check what was fused", &infer_verb},
      {"optimize", "write an ONNX model folded, and in FP16 if asked, for any runtime", &optimize_verb},
      {"version", "print the version", &version_verb},
  };
  return all;
}

}  // namespace sluice::cli
