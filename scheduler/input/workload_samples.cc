#include "scheduler/input/workload_samples.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "scheduler/input/arrival_gaps.h"
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

constexpr double kMaxRequestsPerSecond = 1e9;
constexpr double kMaxArrivalVariation = 1000;  // that of bursty traces is about 10

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
  void Add(RequestLengths sample, int64_t context) {
    if (sample.weight <= 0) return;
    weight_ += sample.weight;
    if (context > 0 && sample.prompt_tokens + sample.output_tokens > static_cast<double>(context)) {
      cut_weight_ += sample.weight;
      sample.output_tokens = std::min(sample.output_tokens, static_cast<double>(context) - 1);
      sample.prompt_tokens = static_cast<double>(context) - sample.output_tokens;
    }
    const auto key = std::pair(MergeKey(sample.prompt_tokens), MergeKey(sample.output_tokens));
    RequestLengths& merged =
        merged_.try_emplace(key, RequestLengths{0, 0, 0, sample.prefix_hit_rate}).first->second;
    const double sum = merged.weight + sample.weight;
    merged.prompt_tokens += (sample.prompt_tokens - merged.prompt_tokens) * sample.weight / sum;
    merged.output_tokens += (sample.output_tokens - merged.output_tokens) * sample.weight / sum;
    merged.weight = sum;
  }

  // Weights sum to 1; empty where nothing was added.
  std::vector<RequestLengths> Finish() const {
    std::vector<RequestLengths> samples;
    for (const auto& [key, sample] : merged_) {
      samples.push_back(sample);
      samples.back().weight /= weight_;
    }
    return samples;
  }
  double cut_share() const { return weight_ > 0 ? cut_weight_ / weight_ : 0; }

 private:
  double weight_ = 0, cut_weight_ = 0;
  std::map<std::pair<double, double>, RequestLengths> merged_;
};

// Samples a class by its lengths alone.
absl::StatusOr<std::vector<RequestLengths>> LengthsOf(const v1::WorkloadClass& c, int64_t context,
                                                      std::string_view where, double* cut_share) {
  const auto error = [&](std::string_view key, std::string_view reason) {
    return absl::InvalidArgumentError(StrCat(where, ".", key, ": ", reason));
  };
  if (!(c.share() >= 0)) return error("share", "must not be negative");
  if (!(c.prefix_hit_rate() >= 0 && c.prefix_hit_rate() < 1)) {
    return error("prefix_hit_rate", "must be at least 0 and below 1");
  }
  if (!c.trace().empty() || !c.trace_text().empty()) {
    return error("trace", "was not read; give `lengths`");
  }
  SampleMerger merger;
  for (const v1::LengthSample& l : c.lengths()) {
    if (l.prompt_tokens() < 1 || l.output_tokens() < 1 || !(l.weight() >= 0)) {
      return error("lengths",
                   "need prompt_tokens and output_tokens of at least 1, and no negative weight");
    }
    merger.Add({static_cast<double>(l.prompt_tokens()), static_cast<double>(l.output_tokens()),
                l.weight() == 0 ? 1 : l.weight(), c.prefix_hit_rate()},
               context);
  }
  *cut_share = merger.cut_share();
  std::vector<RequestLengths> samples = merger.Finish();
  if (samples.empty()) return error("lengths", "are missing");
  return samples;
}

absl::Status ReadObjectives(const v1::ServiceObjectives& objectives, std::string_view where,
                            RequestClass* out) {
  const auto limit = [](double seconds) {
    return seconds > 0 ? seconds : std::numeric_limits<double>::infinity();
  };
  const double attainment = objectives.attainment();
  if (!(attainment >= 0 && attainment <= 1)) {
    return absl::InvalidArgumentError(
        StrCat(where, ".attainment: must be between 0 and 1, such as 0.9 or \"90 %\""));
  }
  for (const auto& [key, seconds] :
       {std::pair("time_to_first_token", objectives.time_to_first_token_seconds()),
        {"time_per_output_token", objectives.time_per_output_token_seconds()},
        {"end_to_end", objectives.end_to_end_seconds()}}) {
    if (!(seconds >= 0))
      return absl::InvalidArgumentError(StrCat(where, ".", key, ": must not be negative"));
  }
  out->limits.ttft_seconds = limit(objectives.time_to_first_token_seconds());
  out->limits.tpot_seconds = limit(objectives.time_per_output_token_seconds());
  out->limits.end_to_end_seconds = limit(objectives.end_to_end_seconds());
  if (attainment > 0) out->required_attainment = attainment;
  return absl::OkStatus();
}

// What classes without a share, or with parts of something else than the whole, would get is not
// guessed. One class has all requests.
absl::Status CheckShares(const v1::Workload& workload, std::string_view file) {
  constexpr double kMaxOff = 0.01 * (1 + 1e-9);  // three times 0.33
  double sum = 0;
  for (const v1::WorkloadClass& c : workload.classes()) sum += std::max(0.0, c.share());
  if (workload.classes_size() == 1 && sum == 0) return absl::OkStatus();
  if (sum == 0) {
    return absl::InvalidArgumentError(
        StrCat(file, ": classes: no class has a share of the requests"));
  }
  if (std::abs(sum - 1) <= kMaxOff) return absl::OkStatus();
  std::string shares;
  for (const v1::WorkloadClass& c : workload.classes())
    shares += absl::StrFormat("%s%.3g", shares.empty() ? "" : ", ", std::max(0.0, c.share()) / sum);
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: classes: their shares sum to %g, not to 1; shares are fractions of all "
                      "requests: %s, if these were meant",
                      file, sum, shares));
}

// The classes of a workload that names no trace.
absl::Status AddClasses(const v1::Workload& workload, int64_t context_tokens, std::string_view file,
                        WorkloadSamples* out) {
  double shares = 0;
  for (const v1::WorkloadClass& c : workload.classes()) shares += c.share();
  for (int i = 0; i < workload.classes_size(); ++i) {
    const v1::WorkloadClass& c = workload.classes(i);
    const std::string where = StrCat(file, ": classes[", i, "]");
    double cut_share = 0;
    absl::StatusOr<std::vector<RequestLengths>> samples =
        LengthsOf(c, context_tokens, where, &cut_share);
    if (!samples.ok()) return samples.status();
    RequestClass one;
    one.name = c.name().empty() ? StrCat("class ", i) : c.name();
    one.share = workload.classes_size() == 1 ? 1 : shares > 0 ? c.share() / shares : 0;
    one.samples = *std::move(samples);
    one.judged_with = c.has_objectives() ? i + 1 : 0;
    const absl::Status read =
        c.has_objectives()
            ? ReadObjectives(c.objectives(), where + ".objectives", &one)
            : ReadObjectives(workload.objectives(), StrCat(file, ": objectives"), &one);
    if (!read.ok()) return read;
    out->cut_share += one.share * cut_share;
    if (one.share > 0) out->classes.push_back(std::move(one));
  }
  return CheckShares(workload, file);
}

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

absl::Status ReadClassTraces(
    const std::function<absl::StatusOr<std::string>(const std::string& path)>& read,
    std::string_view file, v1::Workload* workload) {
  for (int i = 0; i < workload->classes_size(); ++i) {
    v1::WorkloadClass& c = *workload->mutable_classes(i);
    if (c.trace().empty() && c.trace_text().empty()) continue;
    const std::string where = StrCat(file, ": classes[", i, "]");
    if (!c.lengths().empty() || (!c.trace().empty() && !c.trace_text().empty())) {
      return absl::InvalidArgumentError(
          StrCat(where, ": give one of lengths, trace and trace_text"));
    }
    std::string text = c.trace_text();
    if (text.empty()) {
      absl::StatusOr<std::string> contents = read(c.trace());
      if (!contents.ok()) {
        return absl::Status(contents.status().code(),
                            StrCat(where, ".trace: ", StdView(contents.status().message())));
      }
      text = *std::move(contents);
    }
    const absl::StatusOr<std::vector<TraceRequest>> trace =
        ParseTrace(text, c.trace().empty() ? where + ".trace_text" : c.trace());
    if (!trace.ok()) return trace.status();
    std::map<std::pair<int64_t, int64_t>, int64_t> counts;
    for (const TraceRequest& r : *trace) {
      ++counts[{std::max<int64_t>(1, std::llround(r.prompt_tokens)),
                std::max<int64_t>(1, std::llround(r.output_tokens))}];
    }
    for (const auto& [lengths, count] : counts) {
      v1::LengthSample& sample = *c.add_lengths();
      sample.set_prompt_tokens(lengths.first);
      sample.set_output_tokens(lengths.second);
      sample.set_weight(static_cast<double>(count));
    }
    c.clear_trace();
    c.clear_trace_text();
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkloadSamples> SamplesOf(const v1::Workload& workload,
                                          const std::vector<TraceRequest>& trace,
                                          int64_t context_tokens, std::string_view file) {
  const auto error = [&](std::string_view key, std::string_view reason) {
    return absl::InvalidArgumentError(StrCat(file, ": ", key, ": ", reason));
  };
  WorkloadSamples out;
  if (context_tokens == 1) {
    return absl::InvalidArgumentError(
        StrCat(file, ": the longest sequence is 1 token, without room for an answer; allow at ",
               "least 2 (--context)"));
  }
  if (trace.empty() && workload.classes().empty())
    return error("classes", "give classes with lengths, or a trace");
  if (!trace.empty() && !workload.classes().empty())
    return error("trace", "give classes or a trace, not both; a class may have a trace of its own");
  if (!trace.empty()) {
    SampleMerger merger;
    for (const TraceRequest& r : trace) {
      merger.Add({r.prompt_tokens, std::max(1.0, r.output_tokens), 1}, context_tokens);
    }
    out.cut_share = merger.cut_share();
    RequestClass& all = out.classes.emplace_back();
    all.name = "trace";
    all.samples = merger.Finish();
    if (absl::Status s = ReadObjectives(workload.objectives(), StrCat(file, ": objectives"), &all);
        !s.ok()) {
      return s;
    }
  } else if (absl::Status s = AddClasses(workload, context_tokens, file, &out); !s.ok()) {
    return s;
  }
  if (!(workload.requests_per_second() >= 0 && std::isfinite(workload.requests_per_second())))
    return error("requests_per_second", "must be finite and not negative");
  if (workload.requests_per_second() > kMaxRequestsPerSecond)
    return error("requests_per_second", "must be at most 1e9");
  if (!(workload.arrival_variation() >= 0 && std::isfinite(workload.arrival_variation())))
    return error("arrival_variation", "must be finite and not negative");
  if (workload.arrival_variation() > kMaxArrivalVariation)
    return error("arrival_variation", "must be at most 1000");
  double prompt = 0, cached = 0;
  for (const RequestClass& c : out.classes) {
    for (RequestLengths sample : c.samples) {
      sample.weight *= c.share;
      prompt += sample.weight * sample.prompt_tokens;
      cached += sample.weight * sample.prompt_tokens * sample.prefix_hit_rate;
      out.samples.push_back(sample);
    }
  }
  out.prefix_hit_rate = prompt > 0 ? cached / prompt : 0;
  out.requests_per_second = workload.requests_per_second();
  if (out.requests_per_second == 0 && trace.size() > 1 && trace.back().arrival_seconds > 0) {
    out.requests_per_second = static_cast<double>(trace.size() - 1) / trace.back().arrival_seconds;
  }
  const std::optional<double> measured = MeasuredVariation(trace);
  out.arrival_variation_measured = measured && workload.arrival_variation() == 0;
  out.arrival_variation =
      workload.arrival_variation() > 0 ? workload.arrival_variation() : measured.value_or(1);
  return out;
}

}  // namespace tessera::scheduler
