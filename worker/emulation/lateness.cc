#include "worker/emulation/lateness.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tessera::worker {
namespace {

constexpr double kFirstBound = 1e-6;
constexpr double kGrowth = 1.2;

double BoundOf(int bucket) { return kFirstBound * std::pow(kGrowth, bucket); }

int BucketOf(double value, int buckets) {
  if (value <= kFirstBound) return 0;
  const double steps = std::ceil(std::log(value / kFirstBound) / std::log(kGrowth));
  return std::min(buckets - 1, static_cast<int>(steps));
}

template <typename Counts>
std::string ListOf(const Counts& counts) {
  std::string text = "[";
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    char entry[64];
    snprintf(entry, sizeof entry, "%s[%.6g, %lld]", text.size() > 1 ? ", " : "",
             BoundOf(static_cast<int>(i)), static_cast<long long>(counts[i]));
    text += entry;
  }
  return text + "]";
}

}  // namespace

void Lateness::Note(double model_seconds, double late_seconds) {
  const double late = std::max(0.0, late_seconds);
  const double share = model_seconds > 0 ? late / model_seconds : 0;
  std::lock_guard lock(mutex_);
  ++steps_;
  model_seconds_ += model_seconds;
  ++late_[static_cast<size_t>(BucketOf(late, kBuckets))];
  ++share_[static_cast<size_t>(BucketOf(share, kBuckets))];
}

std::string Lateness::Json() const {
  std::lock_guard lock(mutex_);
  char head[96];
  snprintf(head, sizeof head, "{\"steps\": %lld, \"model_seconds\": %.9g, ",
           static_cast<long long>(steps_), model_seconds_);
  return std::string(head) + "\"late_seconds\": " + ListOf(late_) +
         ", \"late_share\": " + ListOf(share_) + "}\n";
}

}  // namespace tessera::worker
