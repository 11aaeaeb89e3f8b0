#include "topics.h"

namespace sluice::cli::doctor {

const std::vector<Topic>& topics() {
  static const std::vector<Topic> all = {
      {"bandwidth", "how fast bytes move, to the cards, on them and between them", &bandwidth_topic},
      {"ecc", "memory errors of the cards, and setting their counts back", &ecc_topic},
  };
  return all;
}

}  // namespace sluice::cli::doctor
