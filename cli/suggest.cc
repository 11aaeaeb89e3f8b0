#include "suggest.h"

#include <algorithm>
#include <cstddef>

namespace sluice::cli {
namespace {

// Damerau-Levenshtein distance with adjacent transpositions, which is how most words are mistyped.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string closest(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kLongest = 64;  // nobody mistypes a novel; keeps the cost bounded
  if (word.empty() || word.size() > kLongest) return "";
  std::string best;
  std::size_t best_edits = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t count = edits(word, candidate);
    if (count < best_edits) {
      best_edits = count;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string best = closest(word, known);
  return best.empty() ? "" : "; did you mean " + best + "?";
}

}  // namespace sluice::cli
