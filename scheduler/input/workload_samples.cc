#include "scheduler/input/workload_samples.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

// Lengths within 3 % of each other are one sample: moments stay, the work does not grow with the
// trace.
constexpr double kMergeRatio = 1.03;

double MergeKey(double tokens) {
  return std::round(std::log(std::max(1.0, tokens)) / std::log(kMergeRatio));
}

// Longer is no request but a fault in the file; sums over a trace stay exact.
constexpr double kMaxTokens = 1e9;

// Written so that NaN is outside.
bool IsTokenCount(double tokens) { return tokens >= 0 && tokens <= kMaxTokens; }

absl::Status LineError(std::string_view file, int line, std::string_view reason) {
  return absl::InvalidArgumentError(StrCat(file, ":", line, ": ", reason));
}

// "2023-11-16 18:15:46.6805900", seconds since 1970; digits beyond nanoseconds are left out.
bool ParseTimestamp(std::string text, double* seconds) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime("%Y-%m-%d %H:%M:%E*S", text, &time, &error)) return false;
  *seconds = absl::ToDoubleSeconds(time - absl::UnixEpoch());
  return std::isfinite(*seconds);  // "infinite-future" is a time to Abseil
}

absl::StatusOr<std::vector<TraceRequest>> ParseCsv(std::string_view text, std::string_view file) {
  std::vector<TraceRequest> requests;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(AbslView(text), '\n')) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    if (number == 1) {
      if (line != "TIMESTAMP,ContextTokens,GeneratedTokens") {
        return LineError(file, 1, "the header must be TIMESTAMP,ContextTokens,GeneratedTokens");
      }
      continue;
    }
    const std::vector<std::string> cells = absl::StrSplit(line, ',');
    TraceRequest request;
    if (cells.size() != 3 || !ParseTimestamp(cells[0], &request.arrival_seconds) ||
        !absl::SimpleAtod(cells[1], &request.prompt_tokens) ||
        !absl::SimpleAtod(cells[2], &request.output_tokens) ||
        !IsTokenCount(request.prompt_tokens) || !IsTokenCount(request.output_tokens)) {
      return LineError(file, number,
                       "must be a time like 2023-11-16 18:15:46.68 and two token counts, at most "
                       "1e9 each");
    }
    requests.push_back(request);
  }
  return requests;
}

absl::StatusOr<std::vector<TraceRequest>> ParseJsonl(std::string_view text, std::string_view file) {
  std::vector<TraceRequest> requests;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(AbslView(text), '\n')) {
    ++number;
    if (line.empty()) continue;
    const nlohmann::json object = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
    const auto number_at = [&](const char* key, double* value) {
      if (!object.is_object() || !object.contains(key) || !object[key].is_number()) return false;
      *value = object[key].get<double>();
      return true;
    };
    TraceRequest request;
    if (!number_at("timestamp", &request.arrival_seconds) ||
        !number_at("input_length", &request.prompt_tokens) ||
        !number_at("output_length", &request.output_tokens) ||
        !std::isfinite(request.arrival_seconds) || !IsTokenCount(request.prompt_tokens) ||
        !IsTokenCount(request.output_tokens)) {
      return LineError(file, number,
                       "must be an object with the numbers timestamp, input_length and "
                       "output_length, lengths at most 1e9");
    }
    request.arrival_seconds /= 1000;
    requests.push_back(request);
  }
  return requests;
}

class SampleMerger {
 public:
  void Add(RequestLengths sample, double hit_rate, int64_t context, WorkloadSamples* out) {
    if (sample.weight <= 0) return;
    if (context > 0 && sample.prompt_tokens + sample.output_tokens > static_cast<double>(context)) {
      ++out->cut_requests;
      sample.output_tokens = std::min(sample.output_tokens, static_cast<double>(context) - 1);
      sample.prompt_tokens = static_cast<double>(context) - sample.output_tokens;
    }
    const auto key = std::pair(MergeKey(sample.prompt_tokens), MergeKey(sample.output_tokens));
    RequestLengths& merged = merged_.try_emplace(key, RequestLengths{0, 0, 0}).first->second;
    const double sum = merged.weight + sample.weight;
    merged.prompt_tokens += (sample.prompt_tokens - merged.prompt_tokens) * sample.weight / sum;
    merged.output_tokens += (sample.output_tokens - merged.output_tokens) * sample.weight / sum;
    merged.weight = sum;
    prompt_ += sample.weight * sample.prompt_tokens;
    hit_ += sample.weight * sample.prompt_tokens * hit_rate;
  }

  void Finish(WorkloadSamples* out) const {
    double weight = 0;
    for (const auto& [key, sample] : merged_) weight += sample.weight;
    for (const auto& [key, sample] : merged_) {
      out->samples.push_back({sample.prompt_tokens, sample.output_tokens, sample.weight / weight});
    }
    out->prefix_hit_rate = prompt_ > 0 ? hit_ / prompt_ : 0;
  }

 private:
  std::map<std::pair<double, double>, RequestLengths> merged_;
  double prompt_ = 0, hit_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<TraceRequest>> ParseTrace(std::string_view text, std::string_view file) {
  absl::StatusOr<std::vector<TraceRequest>> requests =
      !text.empty() && text[0] == '{' ? ParseJsonl(text, file) : ParseCsv(text, file);
  if (!requests.ok()) return requests;
  if (requests->empty())
    return absl::InvalidArgumentError(StrCat(file, ": the trace has no request"));
  std::stable_sort(requests->begin(), requests->end(), [](const auto& a, const auto& b) {
    return a.arrival_seconds < b.arrival_seconds;
  });
  const double start = requests->front().arrival_seconds;
  for (TraceRequest& request : *requests) request.arrival_seconds -= start;
  return requests;
}

absl::StatusOr<WorkloadSamples> SamplesOf(const v1::Workload& workload,
                                          const std::vector<TraceRequest>& trace,
                                          int64_t context_tokens, std::string_view file) {
  const auto error = [&](std::string_view key, std::string_view reason) {
    return absl::InvalidArgumentError(StrCat(file, ": ", key, ": ", reason));
  };
  WorkloadSamples out;
  SampleMerger merger;
  for (const TraceRequest& r : trace) {
    merger.Add({r.prompt_tokens, std::max(1.0, r.output_tokens), 1}, 0, context_tokens, &out);
  }
  if (trace.empty() && workload.classes().empty())
    return error("classes", "give classes with lengths, or a trace");
  for (int i = 0; trace.empty() && i < workload.classes_size(); ++i) {
    const v1::WorkloadClass& c = workload.classes(i);
    const std::string key = StrCat("classes[", i, "]");
    if (c.share() < 0) return error(key + ".share", "must not be negative");
    if (c.prefix_hit_rate() < 0 || c.prefix_hit_rate() >= 1) {
      return error(key + ".prefix_hit_rate", "must be at least 0 and below 1");
    }
    double sum = 0;
    for (const v1::LengthSample& l : c.lengths()) {
      if (l.prompt_tokens() < 1 || l.output_tokens() < 1 || l.weight() < 0) {
        return error(key + ".lengths",
                     "need prompt_tokens and output_tokens of at least 1, and no negative weight");
      }
      sum += l.weight() == 0 ? 1 : l.weight();
    }
    if (sum <= 0) return error(key + ".lengths", "are missing");
    const double share = (c.share() == 0 && workload.classes_size() == 1 ? 1 : c.share()) / sum;
    for (const v1::LengthSample& l : c.lengths()) {
      merger.Add({static_cast<double>(l.prompt_tokens()), static_cast<double>(l.output_tokens()),
                  share * (l.weight() == 0 ? 1 : l.weight())},
                 c.prefix_hit_rate(), context_tokens, &out);
    }
  }
  if (workload.requests_per_second() < 0)
    return error("requests_per_second", "must not be negative");
  if (workload.arrival_variation() < 0) return error("arrival_variation", "must not be negative");
  merger.Finish(&out);
  if (out.samples.empty()) return error("classes", "no class has a share of the requests");
  out.requests_per_second = workload.requests_per_second();
  if (out.requests_per_second == 0 && trace.size() > 1 && trace.back().arrival_seconds > 0) {
    out.requests_per_second = static_cast<double>(trace.size() - 1) / trace.back().arrival_seconds;
  }
  out.arrival_variation = workload.arrival_variation() > 0 ? workload.arrival_variation() : 1;
  return out;
}

}  // namespace tessera::scheduler
