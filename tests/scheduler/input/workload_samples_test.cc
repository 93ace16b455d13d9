#include "scheduler/input/workload_samples.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "proto/document.h"
#include "scheduler/input/arrival_gaps.h"

namespace tessera::scheduler {
namespace {

TEST_CASE("the Azure form of a trace") {
  const auto trace = ParseTrace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n"
      "2023-11-16 18:15:48.6805900,396,109\n"
      "2023-11-16 18:15:46.1805900,374,44\n",
      "t.csv");
  REQUIRE(trace.ok());
  REQUIRE(trace->size() == 2);
  CHECK((*trace)[0].prompt_tokens == 374);
  CHECK((*trace)[1].arrival_seconds == Approx(2.5).margin(1e-3));
  CHECK((*trace)[1].output_tokens == 109);
}

TEST_CASE("the Mooncake form of a trace") {
  const auto trace = ParseTrace(
      "{\"timestamp\": 1000, \"input_length\": 6758, \"output_length\": 500, \"hash_ids\": [0]}\n"
      "{\"timestamp\": 4000, \"input_length\": 7, \"output_length\": 5}\n",
      "t.jsonl");
  REQUIRE(trace.ok());
  CHECK((*trace)[1].arrival_seconds == 3);
  CHECK((*trace)[0].prompt_tokens == 6758);
}

TEST_CASE("faults in a trace are named by line") {
  CHECK_THAT(std::string(ParseTrace("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", "t")
                             .status()
                             .message()),
             Catch::StartsWith("t:2: must be a time"));
  CHECK_THAT(std::string(ParseTrace("a,b\n", "t").status().message()),
             Catch::StartsWith("t:1: the header"));
  CHECK_THAT(std::string(ParseTrace("{\"timestamp\": 1}\n", "t").status().message()),
             Catch::StartsWith("t:1: must be"));
  CHECK_FALSE(ParseTrace("TIMESTAMP,ContextTokens,GeneratedTokens\n", "t").ok());
}

TEST_CASE("a trace's figures are times and lengths, nothing else that reads as a number") {
  const std::string header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (const char* line : {"infinite-past,1,1\n", "2023-11-16 18:15:46,nan,1\n",
                           "2023-11-16 18:15:46,1,-1\n", "2023-11-16 18:15:46,inf,1\n"}) {
    INFO(line);
    CHECK_THAT(std::string(ParseTrace(header + line, "t").status().message()),
               Catch::StartsWith("t:2: must be a time"));
  }
  CHECK_FALSE(
      ParseTrace("{\"timestamp\": 1, \"input_length\": -5, \"output_length\": 1}", "t").ok());
  CHECK_FALSE(
      ParseTrace("{\"timestamp\": 1, \"input_length\": 1e300, \"output_length\": 1}", "t").ok());
}

TEST_CASE("rates that are negative or no number are refused") {
  v1::Workload workload;
  workload.add_classes()->add_lengths()->set_prompt_tokens(1);
  workload.mutable_classes(0)->mutable_lengths(0)->set_output_tokens(1);
  CHECK(SamplesOf(workload, {}, 0, "w").ok());
  workload.set_arrival_variation(-1);
  CHECK(SamplesOf(workload, {}, 0, "w").status().message() ==
        "w: arrival_variation: must be finite and not negative");
  for (const double rate : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    workload.set_requests_per_second(rate);
    CHECK(SamplesOf(workload, {}, 0, "w").status().message() ==
          "w: requests_per_second: must be finite and not negative");
  }
  workload.set_requests_per_second(1e300);
  CHECK(SamplesOf(workload, {}, 0, "w").status().message() ==
        "w: requests_per_second: must be at most 1e9");
  workload.set_requests_per_second(1);
  workload.set_arrival_variation(1e9);
  CHECK(SamplesOf(workload, {}, 0, "w").status().message() ==
        "w: arrival_variation: must be at most 1000");
}

TEST_CASE("classes are mixed by their shares, and cut to the context") {
  v1::Workload workload;
  REQUIRE(ReadDocument(R"(
requests_per_second: 3
classes:
- {name: a, share: 0.75, lengths: [{prompt_tokens: 1000, output_tokens: 100}]}
- {name: b, share: 0.25, prefix_hit_rate: 0.5, lengths: [{prompt_tokens: 3000, output_tokens: 200},
                                                         {prompt_tokens: 9000, output_tokens: 200}]}
)",
                       "w.yaml", &workload)
              .ok());
  const auto samples = SamplesOf(workload, {}, 4096, "w.yaml");
  REQUIRE(samples.ok());
  CHECK(samples->requests_per_second == 3);
  CHECK(samples->cut_share == Approx(0.125));
  const LengthMoments m = MomentsOf(samples->samples);
  CHECK(m.prompt_tokens == Approx(0.75 * 1000 + 0.125 * 3000 + 0.125 * 3896));
  CHECK(m.max_sequence_tokens == 4096);
  CHECK(samples->prefix_hit_rate == Approx(0.125 * (3000 + 3896) * 0.5 / m.prompt_tokens));
}

TEST_CASE("shares are parts of all requests: others are refused, with what may be meant") {
  const auto with = [](const std::vector<double>& shares) {
    v1::Workload workload;
    for (const double share : shares) {
      v1::WorkloadClass& c = *workload.add_classes();
      c.set_share(share);
      v1::LengthSample& lengths = *c.add_lengths();
      lengths.set_prompt_tokens(10);
      lengths.set_output_tokens(5);
    }
    return SamplesOf(workload, {}, 0, "w");
  };
  CHECK(with({0.33, 0.33, 0.33}).ok());
  CHECK(with({0}).ok());  // the only class has all
  CHECK(with({3, 1}).status().message() ==
        "w: classes: their shares sum to 4, not to 1; shares are fractions of all requests: 0.75, "
        "0.25, if these were meant");
  for (const std::vector<double>& bad : {std::vector<double>{0.5, 0.2}, {0.5}, {0, 0}}) {
    CHECK_FALSE(with(bad).ok());
  }
}

TEST_CASE("how unevenly the requests of a trace come is measured, unless it is given") {
  const auto variation = [](const std::vector<double>& gaps, int times, double given = 0) {
    std::vector<TraceRequest> trace = {{0, 10, 5}};
    for (int i = 0; i < times; ++i) {
      for (const double gap : gaps) trace.push_back({trace.back().arrival_seconds + gap, 10, 5});
    }
    v1::Workload workload;
    workload.set_arrival_variation(given);
    const auto samples = SamplesOf(workload, trace, 0, "w");
    REQUIRE(samples.ok());
    CHECK(samples->arrival_variation_measured == (given == 0 && trace.size() >= kFewestArrivals));
    return samples->arrival_variation;
  };
  CHECK(variation({0.7}, 200) == Approx(0).margin(1e-6));  // a clock
  // Gaps of 0.1 and 1.9 around 1: a deviation of 0.9.
  CHECK(variation({0.1, 1.9}, 100) == Approx(0.9));
  // Nine of 0.1 and one of 9.1: variance (9 * 0.81 + 8.1^2 * 9) / 10 of mean 1.
  CHECK(variation({0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 9.1}, 100) ==
        Approx(std::sqrt((9 * 0.81 + 8.1 * 8.1) / 10)));
  CHECK(variation({0.1, 1.9}, 100, 2.5) == 2.5);
  CHECK(variation({0.1, 1.9}, 20) == 1);  // too few to say
  // A clock of 3 s, ten requests to a tick: what happens within a tick is not known.
  CHECK(variation({0, 0, 0, 0, 0, 0, 0, 0, 0, 3}, 50) ==
        Approx(0).margin(0.25));  // 3, were they all at once
}

TEST_CASE("classes keep their own lengths, prefix hits and objectives") {
  v1::Workload workload;
  REQUIRE(ReadDocument(R"(
objectives: {time_to_first_token: 2 s, attainment: 0.9}
classes:
- {name: chat, share: 0.75, lengths: [{prompt_tokens: 1000, output_tokens: 100}]}
- {name: code, share: 0.25, prefix_hit_rate: 0.5, lengths: [{prompt_tokens: 3000, output_tokens: 20}],
   objectives: {time_per_output_token: 50 ms, end_to_end: 4 s}}
- {name: idle, share: 0, lengths: [{prompt_tokens: 1, output_tokens: 1}]}
)",
                       "w", &workload)
              .ok());
  const auto samples = SamplesOf(workload, {}, 0, "w");
  REQUIRE(samples.ok());
  REQUIRE(samples->classes.size() == 2);
  const RequestClass& chat = samples->classes[0];
  const RequestClass& code = samples->classes[1];
  CHECK(chat.share == 0.75);
  CHECK(chat.limits.ttft_seconds == 2);
  CHECK(chat.limits.tpot_seconds > 1e300);
  CHECK(chat.required_attainment == 0.9);
  CHECK(chat.judged_with != code.judged_with);
  CHECK(code.limits.ttft_seconds > 1e300);  // its own objectives stand instead of all others
  CHECK(code.limits.tpot_seconds == 0.05);
  CHECK(code.limits.end_to_end_seconds == 4);
  CHECK(code.required_attainment == 0.99);
  // The long prompts are half cached, the short ones not at all.
  const LengthMoments m = MomentsOf(samples->samples);
  CHECK(m.uncached_prompt_tokens == Approx(0.75 * 1000 + 0.25 * 1500));
  CHECK(m.prefill_pairs == Approx(0.75 * 5e5 + 0.25 * (1500.0 * 1500 + 1500.0 * 1500 / 2)));
  CHECK(samples->prefix_hit_rate == Approx(0.25 * 1500 / (0.75 * 1000 + 0.25 * 3000)));
}

TEST_CASE("a class may take its lengths from a trace, as a file or as text") {
  v1::Workload workload;
  REQUIRE(ReadDocument(R"(
classes:
- {name: a, share: 0.5, trace: a.jsonl}
- name: b
  share: 0.5
  trace_text: |
    TIMESTAMP,ContextTokens,GeneratedTokens
    2023-11-16 18:15:46.68,374,44
    2023-11-16 18:15:47.68,374,44
    2023-11-16 18:15:48.68,396,109
)",
                       "w", &workload)
              .ok());
  CHECK_THAT(std::string(SamplesOf(workload, {}, 0, "w").status().message()),
             Catch::StartsWith("w: classes[0].trace: was not read"));
  v1::Workload missing = workload;
  const auto nothing = [](const std::string& path) -> absl::StatusOr<std::string> {
    return absl::NotFoundError("no file " + path);
  };
  CHECK(ReadClassTraces(nothing, "w", &missing).message() ==
        "w: classes[0].trace: no file a.jsonl");
  const auto read = [](const std::string& path) -> absl::StatusOr<std::string> {
    CHECK(path == "a.jsonl");
    return std::string("{\"timestamp\": 0, \"input_length\": 70, \"output_length\": 5}\n");
  };
  REQUIRE(ReadClassTraces(read, "w", &workload).ok());
  REQUIRE(workload.classes(1).lengths_size() == 2);
  CHECK(workload.classes(1).lengths(0).weight() == 2);
  const auto samples = SamplesOf(workload, {}, 0, "w");
  REQUIRE(samples.ok());
  CHECK(MomentsOf(samples->samples).prompt_tokens ==
        Approx(0.5 * 70 + 0.5 * (2 * 374 + 396) / 3.0));
}

TEST_CASE("objectives and sources of lengths that contradict themselves are refused by key") {
  const auto refusal = [](const char* text) {
    v1::Workload workload;
    if (absl::Status s = ReadDocument(text, "w", &workload); !s.ok())
      return std::string(s.message());
    const auto none = [](const std::string&) -> absl::StatusOr<std::string> { return ""; };
    if (absl::Status s = ReadClassTraces(none, "w", &workload); !s.ok())
      return std::string(s.message());
    return std::string(SamplesOf(workload, {}, 0, "w").status().message());
  };
  const std::string lengths = "lengths: [{prompt_tokens: 9, output_tokens: 9}]";
  CHECK(refusal(("{objectives: {attainment: 1.5}, classes: [{" + lengths + "}]}").c_str()) ==
        "w: objectives.attainment: must be between 0 and 1, such as 0.9 or \"90 %\"");
  CHECK_THAT(refusal(("{classes: [{objectives: {attainment: 90}, " + lengths + "}]}").c_str()),
             Catch::StartsWith("w: classes[0].objectives.attainment"));
  CHECK_THAT(refusal(("{classes: [{objectives: {end_to_end: 5}, " + lengths + "}]}").c_str()),
             Catch::Contains("end_to_end"));  // no unit
  CHECK_THAT(refusal(("{classes: [{trace: x.csv, " + lengths + "}]}").c_str()),
             Catch::StartsWith("w: classes[0]: give one of"));
  v1::Workload both;
  both.add_classes();
  CHECK_THAT(std::string(SamplesOf(both, {{0, 1, 1}}, 0, "w").status().message()),
             Catch::StartsWith("w: trace: give classes or a trace"));
}

TEST_CASE("bad workloads are refused by key") {
  v1::Workload empty;
  CHECK_THAT(std::string(SamplesOf(empty, {}, 0, "w").status().message()),
             Catch::StartsWith("w: classes: give"));
  v1::Workload bad;
  bad.add_classes()->add_lengths();
  CHECK_THAT(std::string(SamplesOf(bad, {}, 0, "w").status().message()),
             Catch::Contains("classes[0].lengths"));
}

TEST_CASE("the example has the published means") {
  v1::Workload workload;
  REQUIRE(ReadDocumentFile("deploy/workloads/azure_conversation.yaml", &workload).ok());
  const auto samples = SamplesOf(workload, {}, 0, "w");
  REQUIRE(samples.ok());
  const LengthMoments m = MomentsOf(samples->samples);
  CHECK(m.prompt_tokens == Approx(1155).epsilon(0.01));
  CHECK(m.output_tokens == Approx(211).epsilon(0.02));
}

}  // namespace
}  // namespace tessera::scheduler
