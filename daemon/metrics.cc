#include "metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <deque>

namespace sluice::daemon {
namespace {

using control::Json;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

constexpr double kMicro = 1e-6, kMega = 1e6;

const Json& at(const Json& object, const char* key) {
  static const Json null;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? null : *found;
}

std::string text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
}

class Families {
 public:
  MetricFamily& add(const char* name, const char* help, MetricType type) {
    return all_.emplace_back(MetricFamily{name, help, type, {}});
  }
  std::vector<MetricFamily> take() {
    return {std::make_move_iterator(all_.begin()), std::make_move_iterator(all_.end())};
  }

 private:
  std::deque<MetricFamily> all_;  // whose elements stay where they are
};

void sample(MetricFamily* family, const Labels& labels, double value) {
  ClientMetric metric;
  metric.label = labels;
  (family->type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  family->metric.push_back(std::move(metric));
}

// One metric whose value stands under a key of every card, or of every job.
struct Row {
  const char* name;
  const char* help;
  const char* key;
  double unit;  // of the key's value, in the metric's
  MetricType type;
};

constexpr Row kOfCards[] = {
    {"sluice_gpu_utilization_ratio", "Part of the last sample period in which any kernel ran.", "utilization_ratio", 1,
     MetricType::Gauge},
    {"sluice_gpu_memory_used_bytes", "Device memory in use.", "memory_used_bytes", 1, MetricType::Gauge},
    {"sluice_gpu_memory_total_bytes", "Device memory.", "memory_total_bytes", 1, MetricType::Gauge},
    {"sluice_gpu_temperature_celsius", "Temperature of the GPU.", "temperature_c", 1, MetricType::Gauge},
    {"sluice_gpu_power_watts", "Power drawn.", "power_w", 1, MetricType::Gauge},
    {"sluice_gpu_power_limit_watts", "Power limit.", "power_limit_w", 1, MetricType::Gauge},
    {"sluice_gpu_lost", "1 where the card does not answer.", "lost", 1, MetricType::Gauge},
    {"sluice_gpu_simulated", "1 where the card is the emulator's.", "simulated", 1, MetricType::Gauge},
    {"sluice_gpu_low_jobs_ratio", "Part of the time that low jobs may run; below 1 on a card that is too hot.",
     "low_jobs_ratio", 1, MetricType::Gauge},
    {"sluice_gpu_batch_hint_ratio", "Part of its batch that a job is advised to take.", "batch_hint_ratio", 1,
     MetricType::Gauge},
    {"sluice_gpu_clocks_locked_hertz", "What the clocks are locked at, while they are.", "clocks_locked_mhz", kMega,
     MetricType::Gauge},
};

constexpr Row kOfJobs[] = {
    {"sluice_job_priority", "Priority; higher wins.", "priority", 1, MetricType::Gauge},
    {"sluice_job_share", "Weight among jobs of equal priority.", "share", 1, MetricType::Gauge},
    {"sluice_job_memory_bytes", "Device memory of its processes, as NVML tells.", "memory_bytes", 1, MetricType::Gauge},
    {"sluice_job_memory_allocated_bytes", "Device memory that its allocations hold.", "memory_allocated_bytes", 1,
     MetricType::Gauge},
    {"sluice_job_memory_limit_bytes", "Limit on that, where it has one.", "memory_limit_bytes", 1, MetricType::Gauge},
    {"sluice_job_launches_total", "Kernels, graphs, copies and memsets submitted.", "launches", 1, MetricType::Counter},
    {"sluice_job_gated_launches_total", "Of these, behind a gate.", "gated", 1, MetricType::Counter},
    {"sluice_job_held_seconds_total", "Time that its work was held.", "held_us", kMicro, MetricType::Counter},
    {"sluice_job_holds_total", "Times that it was held.", "holds", 1, MetricType::Counter},
    {"sluice_job_gpu_seconds_total", "Sampled kernel time times launches.", "gpu_time_us", kMicro, MetricType::Counter},
    {"sluice_job_stalls_total", "Times that its hold on others was dropped for want of progress.", "stalls", 1,
     MetricType::Counter},
    {"sluice_job_age_seconds", "Time since it was started.", "started_us", kMicro, MetricType::Gauge},
};

template <std::size_t N, class LabelsOf>
void add_rows(const Row (&rows)[N], const Json& objects, LabelsOf labels_of, Families* families) {
  for (const Row& row : rows) {
    MetricFamily& family = families->add(row.name, row.help, row.type);
    for (const Json& object : objects) {
      const Json& value = at(object, row.key);
      if (value.is_boolean()) sample(&family, labels_of(object), value.get<bool>() ? 1 : 0);
      if (value.is_number()) sample(&family, labels_of(object), value.get<double>() * row.unit);
    }
  }
}

Labels of_card(const Json& card) {
  return {{"gpu", text(at(card, "index"))}, {"uuid", text(at(card, "uuid"))}, {"name", text(at(card, "name"))}};
}
Labels of_job(const Json& job) { return {{"job", text(at(job, "id"))}, {"name", text(at(job, "name"))}}; }

}  // namespace

std::string metrics_text(const Json& status) {
  static const Json none = Json::array();
  const auto list = [&](const char* key) -> const Json& {
    const Json& found = at(status, key);
    return found.is_array() ? found : none;
  };
  const Json &daemon = at(status, "daemon"), &cards = list("devices"), &jobs = list("jobs");
  Families families;
  sample(&families.add("sluice_build_info", "1, with the daemon's version.", MetricType::Gauge),
         {{"version", text(at(daemon, "version"))}}, 1);
  sample(&families.add("sluice_daemon_uptime_seconds", "Since the daemon was started.", MetricType::Gauge), {},
         at(daemon, "uptime_us").is_number() ? at(daemon, "uptime_us").get<double>() * kMicro : 0);
  sample(&families.add("sluice_jobs", "Jobs that live.", MetricType::Gauge), {}, static_cast<double>(jobs.size()));
  sample(&families.add("sluice_unmanaged_processes", "Processes on the cards that are in no job.", MetricType::Gauge),
         {}, static_cast<double>(list("unmanaged").size()));

  add_rows(kOfCards, cards, of_card, &families);
  MetricFamily& out =
      families.add("sluice_gpu_out_of_use", "1 where no job is started on the card.", MetricType::Gauge);
  for (const Json& card : cards) sample(&out, of_card(card), at(card, "out_of_use").is_string() ? 1 : 0);
  MetricFamily& throttled =
      families.add("sluice_gpu_throttled", "1 for each reason that holds the clocks down.", MetricType::Gauge);
  for (const Json& card : cards) {
    const Json& reasons = at(card, "throttle");
    if (!reasons.is_array()) continue;
    for (const Json& reason : reasons) {
      Labels labels = of_card(card);
      labels.push_back({"reason", text(reason)});
      sample(&throttled, labels, 1);
    }
  }

  add_rows(kOfJobs, jobs, of_job, &families);
  MetricFamily& states = families.add("sluice_job_state", "1, with the job's state and user.", MetricType::Gauge);
  for (const Json& job : jobs) {
    Labels labels = of_job(job);
    labels.push_back({"state", text(at(job, "state"))});
    labels.push_back({"user", text(at(job, "user"))});
    sample(&states, labels, 1);
  }
  std::vector<MetricFamily> all = families.take();
  std::erase_if(all, [](const MetricFamily& family) { return family.metric.empty(); });
  return prometheus::TextSerializer().Serialize(all);
}

}  // namespace sluice::daemon
