#include "topics.h"

namespace sluice::cli::doctor {

const std::vector<Topic>& topics() {
  static const std::vector<Topic> all = {
      {"ecc", "memory errors of the cards, and setting their counts back", &ecc_topic},
  };
  return all;
}

}  // namespace sluice::cli::doctor
