// When requests count as changed, what is remembered of them, and which are counted.
#include "coordinator/replanning/workload_watch.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/replanning/counted_service.h"

namespace tessera::coordinator {
namespace {

constexpr ServedRequest kPlanned = {.prompt_tokens = 100, .output_tokens = 20};

struct Watched {
  Watched() {
    watch.SetReference({.prompt_tokens = 100, .uncached_prompt_tokens = 100, .output_tokens = 20});
  }
  // Four requests a second for so long, with a look each second; how often they had changed.
  int Serve(const ServedRequest& request, double seconds) {
    int changed = 0;
    for (const double end = now + seconds; now < end; now += 0.25) {
      watch.Add(request, now);
      if (static_cast<int>(now * 4) % 4 == 0) changed += watch.Changed(now) ? 1 : 0;
    }
    return changed;
  }
  WorkloadWatchOptions options;
  WorkloadWatch watch{options};
  double now = 1000;
};

// Answers at once with what it is given.
struct Scripted : GenerationService {
  absl::StatusOr<std::unique_ptr<GenerationHandle>> Start(
      GenerationRequest request, std::shared_ptr<GenerationSink> sink) override {
    prompts.push_back(static_cast<int64_t>(request.prompt_token_ids.size()));
    if (prompts.back() == 0) return absl::InvalidArgumentError("no prompt");
    sink->OnEnd(status, usage, "r0");
    return nullptr;
  }
  absl::Status status;
  GenerationUsage usage;
  std::vector<int64_t> prompts;
};

struct Sink : GenerationSink {
  void OnPromptLogprobs(std::vector<PositionChances>) override {}
  void OnChoice(ChoiceEvent) override {}
  void OnEnd(const absl::Status& ended, const GenerationUsage& used, const std::string&) override {
    status = ended;
    usage = used;
  }
  absl::Status status = absl::UnknownError("open");
  GenerationUsage usage;
};

}  // namespace

TEST_CASE("requests as planned have not changed, nor have a few others") {
  Watched w;
  CHECK(w.Serve(kPlanned, 600) == 0);
  CHECK(w.Serve({.prompt_tokens = 140, .output_tokens = 15}, 600) == 0);  // within 1.5
  CHECK(w.Serve(kPlanned, 60) == 0);
  CHECK(w.Serve({.prompt_tokens = 4000, .output_tokens = 20}, 0.5) == 0);  // two requests
  CHECK(w.Serve(kPlanned, 2) == 0);
}

TEST_CASE("lengths, and the part that a prefix cache has, change the workload within 30 s") {
  for (const ServedRequest& request :
       {ServedRequest{.prompt_tokens = 20, .output_tokens = 20},
        ServedRequest{.prompt_tokens = 400, .output_tokens = 20},
        ServedRequest{.prompt_tokens = 100, .output_tokens = 100},
        ServedRequest{.prompt_tokens = 100, .output_tokens = 4},
        ServedRequest{.prompt_tokens = 100, .cached_tokens = 80, .output_tokens = 20}}) {
    Watched w;
    REQUIRE(w.Serve(kPlanned, 300) == 0);
    CHECK(w.Serve(request, 30) > 0);
  }
}

TEST_CASE("a rate counts where one was asked for") {
  Watched w;
  REQUIRE(w.Serve(kPlanned, 60) == 0);
  CHECK(w.watch.Recent(w.now).requests_per_second == Approx(4).epsilon(0.05));
  WorkloadFigures reference = w.watch.reference();
  reference.requests_per_second = 4;
  w.watch.SetReference(reference);
  CHECK(w.Serve(kPlanned, 60) == 0);
  reference.requests_per_second = 1;
  w.watch.SetReference(reference);
  CHECK(w.Serve(kPlanned, 60) > 0);
}

TEST_CASE("it stays changed until it is well within the band, and not for a moment's peak") {
  Watched w;
  const ServedRequest off = {.prompt_tokens = 160, .output_tokens = 20};
  const ServedRequest nearly = {.prompt_tokens = 140, .output_tokens = 20};
  REQUIRE(w.Serve(off, 60) > 0);
  CHECK(w.Serve(nearly, 60) > 0);  // beyond 1.25: on its own it would not have been off
  CHECK(w.Serve(kPlanned, 30) <= 20);
  CHECK(w.Serve(kPlanned, 60) == 0);
  CHECK(w.Serve(nearly, 60) == 0);
  // Off for less than the time that it must be.
  Watched peak;
  REQUIRE(peak.Serve(kPlanned, 60) == 0);
  CHECK(peak.Serve({.prompt_tokens = 800, .output_tokens = 20}, 4) == 0);
}

TEST_CASE("nothing is judged twice within a minute, and what was judged is the new reference") {
  Watched w;
  const ServedRequest other = {.prompt_tokens = 800, .output_tokens = 20};
  REQUIRE(w.Serve(other, 40) > 0);
  w.watch.NoteJudged(w.now);
  const double judged = w.now;
  CHECK(w.Serve(other, 55) == 0);
  CHECK(w.Serve(other, 10) > 0);  // the reference is as it was
  CHECK(w.now - judged >= w.options.interval_seconds);
  w.watch.SetReference(w.watch.Recent(w.now));
  CHECK(w.Serve(other, 120) == 0);
  CHECK(w.Serve(kPlanned, 40) > 0);
}

TEST_CASE("too few requests say nothing, and memory has a bound") {
  WorkloadWatchOptions options;
  options.max_requests = 100;
  options.min_requests = 40;
  WorkloadWatch watch(options);
  watch.SetReference({.prompt_tokens = 1, .uncached_prompt_tokens = 1, .output_tokens = 1});
  for (int i = 0; i < 39; ++i) watch.Add(kPlanned, i);
  CHECK(watch.Recent(40).prompt_tokens == 0);
  CHECK_FALSE(watch.Changed(40));
  // So many, but of long ago.
  CHECK(watch.Recent(39).requests_per_second == 0);
  watch.Add(kPlanned, 40);
  CHECK(watch.Recent(41).prompt_tokens == 100);
  CHECK(watch.Recent(400).prompt_tokens == 0);
  for (int i = 0; i < 10000; ++i)
    watch.Add({.prompt_tokens = 7, .output_tokens = 3}, 400 + i * 1e-3);
  const v1::Workload workload = watch.Observed(410);
  REQUIRE(workload.classes(0).lengths_size() == 1);
  CHECK(workload.classes(0).lengths(0).weight() == 100);
}

TEST_CASE("what was seen is a workload to plan with") {
  Watched w;
  for (int i = 0; i < 20; ++i) {
    w.Serve({.prompt_tokens = 100, .cached_tokens = 50, .output_tokens = 20}, 0.25);
    w.Serve({.prompt_tokens = 300, .cached_tokens = 0, .output_tokens = 0}, 0.25);
  }
  const v1::Workload workload = w.watch.Observed(w.now);
  REQUIRE(workload.classes_size() == 1);
  const v1::WorkloadClass& all = workload.classes(0);
  CHECK(workload.requests_per_second() == Approx(4).epsilon(0.1));
  CHECK(all.prefix_hit_rate() == Approx(50.0 / 400));
  REQUIRE(all.lengths_size() == 2);
  CHECK(all.lengths(0).prompt_tokens() == 100);
  CHECK(all.lengths(0).weight() == all.lengths(1).weight());
  CHECK(all.lengths(1).output_tokens() == 1);  // of a prompt alone
}

TEST_CASE("requests that were answered are counted, and reach the sink as they are") {
  WorkloadWatchOptions options;
  options.min_requests = 1;
  const auto watch = std::make_shared<GuardedWatch>(options);
  Scripted scripted;
  scripted.usage.prompt_tokens = 30;
  scripted.usage.cached_tokens = 10;
  scripted.usage.completion_tokens = 5;
  const auto counted = MakeCountedService(scripted, watch, [] { return 1.0; });
  const auto seen = [&] { return watch->With([](WorkloadWatch& w) { return w.Recent(1); }); };
  const auto sink = std::make_shared<Sink>();
  GenerationRequest request;
  CHECK(counted->Start(request, sink).status().message() == "no prompt");
  request.prompt_token_ids = {1, 2, 3};
  scripted.status = absl::UnavailableError("lost");
  CHECK(counted->Start(request, sink).ok());
  CHECK(sink->status.message() == "lost");
  CHECK(seen().prompt_tokens == 0);
  scripted.status = absl::OkStatus();
  CHECK(counted->Start(request, sink).ok());
  CHECK(sink->status.ok());
  CHECK(sink->usage.completion_tokens == 5);
  CHECK(seen().prompt_tokens == 30);
  CHECK(seen().uncached_prompt_tokens == 20);
  CHECK(seen().output_tokens == 5);
  CHECK(scripted.prompts == std::vector<int64_t>{0, 3, 3});
}

}  // namespace tessera::coordinator
