// TfIdfVectorizer on integers: how often the n-grams of a pool occur in each row. Pools of strings are refused.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "operators/lambda_kernel.h"
#include "operators/registry.h"

namespace sluice::engine {
namespace {

// An n-gram of the pool: n items from `first` on, and where its count goes.
struct Gram {
  std::int64_t first = 0, n = 0, column = 0;
  float weight = 1;
};

struct Pool {
  std::vector<std::int64_t> items;
  std::vector<Gram> grams;
  std::int64_t columns = 0, min_n = 1, max_n = 1, max_skip = 0;
};

// `ngram_counts`: where the n-grams of each length, from 1 on, start in the pool.
Result<Pool> pool_of(const Node& node) {
  const auto wrong = [&](const char* what) {
    return Status::error(Code::kInvalidArgument, "%s: %s; the model is damaged", describe(node).c_str(), what);
  };
  Pool pool;
  pool.items = node.get_ints("pool_int64s");
  pool.min_n = node.get_int("min_gram_length", 1);
  pool.max_n = node.get_int("max_gram_length", 1);
  pool.max_skip = node.get_int("max_skip_count", 0);
  const std::vector<std::int64_t> starts = node.get_ints("ngram_counts"), columns = node.get_ints("ngram_indexes");
  const std::vector<float> weights = node.get_floats("weights");
  const auto size = static_cast<std::int64_t>(pool.items.size());
  if (pool.min_n < 1 || pool.max_n < pool.min_n || pool.max_skip < 0 ||
      pool.max_n > static_cast<std::int64_t>(starts.size())) {
    return wrong("its lengths of n-grams do not fit ngram_counts");
  }
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t n = static_cast<std::int64_t>(i) + 1;
    const std::int64_t end = i + 1 < starts.size() ? starts[i + 1] : size;
    if (starts[i] < 0 || starts[i] > end || end > size || (end - starts[i]) % n != 0) {
      return wrong("ngram_counts does not divide the pool");
    }
    for (std::int64_t first = starts[i]; first < end; first += n) {
      const std::size_t id = pool.grams.size();
      if (id >= columns.size() || columns[id] < 0 || columns[id] > std::numeric_limits<std::int32_t>::max() ||
          (!weights.empty() && weights.size() != columns.size())) {
        return wrong("ngram_indexes and weights do not fit the pool");
      }
      pool.grams.push_back({first, n, columns[id], weights.empty() ? 1.0f : weights[id]});
      pool.columns = std::max(pool.columns, columns[id] + 1);
    }
  }
  if (pool.grams.size() != columns.size()) {
    return wrong("ngram_indexes does not fit the pool");
  }
  return pool;
}

Status check_tf_idf(const Node& node) {
  const std::string mode = node.get_string("mode", "");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") {
    return refuse(node, "its mode is none of TF, IDF and TFIDF", "use one of these");
  }
  auto pool = pool_of(node);
  return pool.ok() ? Status() : pool.status();
}

Status infer_tf_idf(ShapeContext& context) {
  auto pool = pool_of(context.node());
  if (!pool.ok()) {
    return pool.status();
  }
  if (context.rank(0) != 1 && context.rank(0) != 2) {
    return context.error(Code::kInvalidArgument, "it takes rows, not %s", to_string(context.dims(0)).c_str());
  }
  return context.set(0, context.rank(0) == 1 ? Dims{pool->columns} : Dims{context.dims(0)[0], pool->columns});
}

// Calls f(gram) for each occurrence in a row. Items of an n-gram stand 1 to max_skip + 1 apart; a single one has no
// distance and counts once.
template <class T, class F>
void for_each_gram(const Pool& pool, const T* row, std::int64_t length, F f) {
  for (std::int64_t distance = 1; distance <= pool.max_skip + 1 && distance <= std::max(length, std::int64_t{1});
       ++distance) {
    for (const Gram& gram : pool.grams) {
      if (gram.n < pool.min_n || gram.n > pool.max_n || (gram.n == 1 && distance > 1)) {
        continue;
      }
      for (std::int64_t start = 0; start + (gram.n - 1) * distance < length; ++start) {
        bool same = true;
        for (std::int64_t i = 0; same && i < gram.n; ++i) {
          same = row[start + i * distance] == pool.items[static_cast<std::size_t>(gram.first + i)];
        }
        if (same) {
          f(gram);
        }
      }
    }
  }
}

Result<std::unique_ptr<Kernel>> tf_idf_kernel(KernelContext& context) {
  auto pool = pool_of(context.node());
  if (!pool.ok()) {
    return pool.status();
  }
  const Dims& dims = context.input(0).dims;
  const std::int64_t rows = dims.size() == 1 ? 1 : dims[0], length = dims.back();
  const std::string mode = context.node().get_string("mode", "");
  const bool counts = mode != "IDF", weighs = mode != "TF";
  const auto make = [&](auto item) {
    using T = decltype(item);
    return make_kernel([pool = *pool, rows, length, counts, weighs](const KernelRun& run) {
      float* out = run.outputs[0].out<float>();
      std::fill_n(out, rows * pool.columns, 0.0f);
      for (std::int64_t row = 0; row < rows; ++row, out += pool.columns) {
        for_each_gram(pool, run.inputs[0].as<T>() + row * length, length, [&](const Gram& gram) {
          const float weight = weighs ? gram.weight : 1.0f;
          out[gram.column] = counts ? out[gram.column] + weight : weight;
        });
      }
    });
  };
  return context.input(0).dtype == DType::kInt32 ? make(std::int32_t{}) : make(std::int64_t{});
}

}  // namespace

void register_ngrams(Registry& registry) {
  registry.add({.op = "TfIdfVectorizer",
                .first = 9,
                .inputs = "X:T",
                .outputs = "Y:F",
                .attributes = "max_gram_length:int!, max_skip_count:int!, min_gram_length:int!, mode:string!, "
                              "ngram_counts:ints!, ngram_indexes:ints!, pool_int64s:ints!, weights:floats",
                .types = {{"T", kIndices}, {"F", kFloat32}},
                .infer = infer_tf_idf,
                .kernel = tf_idf_kernel,
                .check = check_tf_idf});
}

}  // namespace sluice::engine
