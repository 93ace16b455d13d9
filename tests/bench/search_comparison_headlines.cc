// The headline ratios of the papers behind the searches, beside ours on clusters declared here:
// their own clusters, prices and systems are not ours, so the ratios are compared, not the figures.
//
// 1. HexGen-2: unlike cards against like ones at equal price, and at 30 % less. 2. ThunderServe:
// split against unsplit roles over 40 and 5 Gbit/s. 3. Demystifying Cost-Efficiency: the best mix
// of rented cards against the best of one kind. At the end the table of scheduler/README.md. Bars:
// `best` is nowhere below the paper's search by more than 0.1 %, more bandwidth never serves less,
// and a mix never serves less than one of its kinds.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/planner/planner.h"
#include "scheduler/search/baselines/cost_program.h"
#include "scheduler/search/layout/device_groups.h"
#include "scheduler/search/searches.h"

namespace tessera::scheduler {
namespace {

namespace fs = std::filesystem;

constexpr double kMaxLoss = 0.001;

// Claim, the paper's figure, ours: as in scheduler/README.md.
using Rows = std::vector<std::string>;

void AddRow(const char* claim, const char* paper, const std::string& ours, Rows* rows) {
  rows->push_back(absl::StrFormat("| %s | %s | %s |", claim, paper, ours));
}

struct Served {
  double requests_per_second = 0;
  double output_tokens_per_second = 0;
  double usd_per_hour = 0;
};

class Headlines {
 public:
  absl::Status Read(const fs::path& root) {
    absl::StatusOr<v1::DeviceCatalogue> catalogue = BuiltInDevices();
    if (!catalogue.ok()) return catalogue.status();
    catalogue_ = *std::move(catalogue);
    return ReadDocumentFile((root / "deploy/workloads/azure_conversation.yaml").string(),
                            &workload_);
  }

  // tpot_seconds: limit on the time per output token, 0: none.
  Served Plan(const std::string& cluster, const char* model, const char* search, bool split,
              double tpot_seconds = 0) const {
    PlannerInput input;
    input.catalogue = catalogue_;
    input.workload = workload_;
    input.model = *BuiltInModel(model);
    Served served;
    if (absl::Status s = ReadDocument(cluster, "stand-in", &input.cluster); !s.ok()) {
      std::printf("%s\n", std::string(s.message()).c_str());
      return served;
    }
    PlannerOptions options;
    input.workload.mutable_objectives()->set_time_per_output_token_seconds(tpot_seconds);
    options.allow_split = split;
    options.given_search = [&](const PlacementProblem& problem) {
      absl::StatusOr<Placement> placement = (*FindSearch(search))(problem);
      if (placement.ok()) served.usd_per_hour = placement->usd_per_hour;
      return placement;
    };
    const absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(input, options);
    if (!plan.ok()) {
      std::printf("  %s: %s\n", search, std::string(plan.status().message()).c_str());
      return served;
    }
    served.requests_per_second = plan->prediction().requests_per_second();
    served.output_tokens_per_second = plan->prediction().output_tokens_per_second();
    return served;
  }

  const v1::DeviceCatalogue& catalogue() const { return catalogue_; }

 private:
  v1::DeviceCatalogue catalogue_;
  v1::Workload workload_;
};

// Equal prices are declared here, so that the clusters stay what they are when the catalogue's
// move: H100 2.5, A100 1.5, L40 0.8, A6000 0.5 USD per hour give 20.0, 19.8 and 13.2. With H100
// at 4.3, the dear end of the market of 2024-2026: 34.4, 23.4 and 13.2, and the last cluster 34.0.
constexpr char kLike[] = "machines:\n- {name: h, devices: [{kind: H100-SXM, count: 8}]}\n";
constexpr char kUnlike[] = R"(
machines:
- {name: h, devices: [{kind: H100-SXM, count: 2}]}
- {name: a, devices: [{kind: A100-80, count: 4}]}
- {name: l, devices: [{kind: L40, count: 6}]}
- {name: w, devices: [{kind: A6000, count: 8}]}
tiers: {site: {bandwidth: 100 Gbit/s, latency: 20 us}}
)";
constexpr char kUnlikeForLess[] = R"(
machines:
- {name: a, devices: [{kind: A100-80, count: 4}]}
- {name: l, devices: [{kind: L40, count: 4}]}
- {name: w, devices: [{kind: A6000, count: 8}]}
tiers: {site: {bandwidth: 100 Gbit/s, latency: 20 us}}
)";

constexpr char kUnlikeForDear[] = R"(
machines:
- {name: h, devices: [{kind: H100-SXM, count: 4}]}
- {name: a, devices: [{kind: A100-80, count: 4}]}
- {name: l, devices: [{kind: L40, count: 6}]}
- {name: w, devices: [{kind: A6000, count: 6}]}
- {name: v, devices: [{kind: A6000, count: 6}]}
tiers: {site: {bandwidth: 100 Gbit/s, latency: 20 us}}
)";

bool HexGen2(const Headlines& headlines, Rows* rows) {
  std::printf(
      "HexGen-2, Llama-2-70B, conversation; the paper: up to 2.0x (mean 1.3x) at equal price, "
      "equal at 30 %% less\n");
  bool passed = true;
  double like = 0, like_paper = 0;
  std::vector<double> ours, papers;  // against the like ones, each by the same search
  for (const auto& [name, cluster] : {std::pair("8 H100", kLike),
                                      {"2 H100, 4 A100, 6 L40, 8 A6000", kUnlike},
                                      {"4 A100, 4 L40, 8 A6000", kUnlikeForLess},
                                      {"4 H100, 4 A100, 6 L40, 12 A6000", kUnlikeForDear}}) {
    const Served paper = headlines.Plan(cluster, "Llama-2-70B", "hexgen2", true);
    const Served best = headlines.Plan(cluster, "Llama-2-70B", "best", true);
    if (like == 0) {
      like = best.requests_per_second;
      like_paper = paper.requests_per_second;
    }
    ours.push_back(best.requests_per_second / like);
    papers.push_back(paper.requests_per_second / like_paper);
    std::printf("  %-31s hexgen2 %.2f, best %.2f requests/s: %.2fx the like ones\n", name,
                paper.requests_per_second, best.requests_per_second,
                best.requests_per_second / like);
    passed = passed && best.requests_per_second > 0 &&
             best.requests_per_second >= paper.requests_per_second * (1 - kMaxLoss);
  }
  AddRow("HexGen-2: unlike cards against 8 H100 at equal price", "up to 2.0x, mean 1.3x",
         absl::StrFormat("`best` %.2fx with H100 at 2.5 USD/h (2 H100, 4 A100, 6 L40, 8 A6000), "
                         "%.2fx with H100 at 4.3 USD/h (4, 4, 6, 12); `hexgen2` against itself on "
                         "the H100s %.2fx and %.2fx",
                         ours[1], ours[3], papers[1], papers[3]),
         rows);
  // With H100 at 4.3 USD/h, what costs as much as eight at 2.5 costs 32 % less than these.
  AddRow("the same at 30 % less", "equal",
         absl::StrFormat("`best` %.2fx (4 A100, 4 L40, 8 A6000) and %.2fx", ours[2], ours[1]),
         rows);
  return passed;
}

constexpr double kTightTpot = 0.06;

bool ThunderServe(const Headlines& headlines, Rows* rows) {
  std::printf(
      "ThunderServe, LLaMA-30B on 4 A40 and 4 3090Ti, conversation; the paper: 1610 tokens/s "
      "unsplit, split 3292 (2.04x) at 40 Gbit/s, 2196 (1.36x) at 5 Gbit/s\n");
  double slower = 0;
  bool passed = true;
  std::vector<double> ratios;
  for (const auto& [rate, tpot] :
       {std::pair("5", 0.0), {"40", 0.0}, {"5", kTightTpot}, {"40", kTightTpot}}) {
    if (std::string_view(rate) == "5") slower = 0;
    const std::string cluster = std::string(
                                    "machines:\n- {name: a, devices: [{kind: A40, count: 4}]}\n"
                                    "- {name: b, devices: [{kind: RTX3090Ti, count: 4}]}\n"
                                    "tiers: {site: {bandwidth: ") +
                                rate + " Gbit/s, latency: 50 us}}\n";
    const Served whole = headlines.Plan(cluster, "LLaMA-30B", "thunderserve", false, tpot);
    const Served split = headlines.Plan(cluster, "LLaMA-30B", "thunderserve", true, tpot);
    const Served best = headlines.Plan(cluster, "LLaMA-30B", "best", true, tpot);
    ratios.push_back(split.output_tokens_per_second / whole.output_tokens_per_second);
    std::printf("  %2s Gbit/s%s: unsplit %.0f, split %.0f output tokens/s (%.2fx); best %.0f\n",
                rate, tpot > 0 ? ", TPOT <= 60 ms" : "", whole.output_tokens_per_second,
                split.output_tokens_per_second, ratios.back(), best.output_tokens_per_second);
    const double most = std::max(whole.requests_per_second, split.requests_per_second);
    passed = passed && best.requests_per_second > 0 &&
             best.requests_per_second >= most * (1 - kMaxLoss) &&
             split.requests_per_second >= slower * (1 - kMaxLoss);
    slower = split.requests_per_second;
  }
  AddRow("ThunderServe: split against unsplit, 4 A40 and 4 3090Ti, LLaMA-30B",
         "2.04x at 40 Gbit/s, 1.36x at 5",
         absl::StrFormat("%.2fx and %.2fx; with a limit of 60 ms per output token %.2fx and %.2fx",
                         ratios[1], ratios[0], ratios[3], ratios[2]),
         rows);
  return passed;
}

// A market: cards by kind, in machines of at most eight.
struct Offer {
  const char* kind;
  int available;
  double usd_per_hour;  // of one, declared as above
};
constexpr Offer kMarket[] = {{"RTX4090", 16, 0.5}, {"A40", 12, 0.5},    {"A6000", 8, 0.5},
                             {"L40", 12, 0.8},     {"A100-80", 6, 1.5}, {"H100-SXM", 8, 2.5}};
// Heavy and light prompts and outputs, cut at 512 and 128 tokens.
constexpr RequestLengths kClasses[] = {{1800, 40}, {1800, 400}, {200, 400}, {200, 40}};
constexpr double kMix[][4] = {{0.4, 0.1, 0.3, 0.2}, {0.6, 0.2, 0.1, 0.1}, {0.1, 0.1, 0.6, 0.2}};

// What every number of cards of every kind serves of every class, as a program without budget.
absl::StatusOr<CostProgram> MarketProgram(const Headlines& headlines, const ModelShape& model) {
  CostProgram program;
  for (const Offer& offer : kMarket) program.available.push_back(offer.available);
  for (size_t k = 0; k < std::size(kMarket); ++k) {
    v1::Cluster cluster;
    const std::string text = std::string("machines:\n- {name: m, devices: [{kind: ") +
                             kMarket[k].kind + ", count: 8}]}\n";
    if (absl::Status s = ReadDocument(text, "market", &cluster); !s.ok()) return s;
    const absl::StatusOr<ClusterGraph> graph =
        MakeClusterGraph(cluster, headlines.catalogue(), "market");
    if (!graph.ok()) return graph.status();
    for (const int cards : {2, 4, 8}) {
      if (cards > kMarket[k].available) continue;
      CostProgram::Configuration configuration;
      configuration.devices.assign(std::size(kMarket), 0);
      configuration.devices[k] = cards;
      configuration.usd_per_hour = cards * kMarket[k].usd_per_hour;
      for (const RequestLengths& lengths : kClasses) {
        PlacementProblem problem;
        problem.model = &model;
        problem.graph = &*graph;
        problem.samples = {lengths};
        GroupLayouts layouts(problem, {});
        configuration.requests_per_second.push_back(
            layouts.ReplicaOf({Role::kBoth, {cards}}).rate.requests_per_second);
      }
      program.configurations.push_back(configuration);
    }
  }
  return program;
}

bool CostEfficiency(const Headlines& headlines, Rows* rows) {
  std::printf(
      "Demystifying Cost-Efficiency, Llama-2-70B, four classes; the paper: a mix serves 20 %% "
      "more on average than the best of one kind\n");
  const absl::StatusOr<ModelShape> model = MakeModelShape(*BuiltInModel("Llama-2-70B"));
  absl::StatusOr<CostProgram> program = MarketProgram(headlines, *model);
  if (!program.ok()) return false;
  bool passed = true;
  double sum = 0;
  int cases = 0;
  std::string by_budget;
  for (const double budget : {10.0, 15.0, 30.0}) {
    double least = 1e9, most = 0;  // of the mixes' gains
    for (const auto& mix : kMix) {
      program->budget_usd_per_hour = budget;
      program->class_rates.assign(std::begin(mix), std::end(mix));
      const absl::StatusOr<Rental> mixed = LargestRental(*program);
      const absl::StatusOr<Rental> bisected = LargestRentalByBisection(*program);
      if (!mixed.ok() || !bisected.ok()) return false;
      double alone = 0;
      const char* kind = "";
      for (size_t k = 0; k < std::size(kMarket); ++k) {
        CostProgram one = *program;
        for (size_t other = 0; other < std::size(kMarket); ++other)
          one.available[other] = other == k ? kMarket[k].available : 0;
        const absl::StatusOr<Rental> like = LargestRental(one);
        if (!like.ok() || like->served <= alone) continue;
        alone = like->served;
        kind = kMarket[k].kind;
      }
      std::printf(
          "  %2.0f USD/h, mix %.0f:%.0f:%.0f:%.0f: mixed %.2f (bisection %.2f), best of one "
          "kind %.2f (%s): %+.0f %%\n",
          budget, mix[0] * 10, mix[1] * 10, mix[2] * 10, mix[3] * 10, mixed->served,
          bisected->served, alone, kind, 100 * (mixed->served / alone - 1));
      sum += mixed->served / alone;
      least = std::min(least, mixed->served / alone - 1);
      most = std::max(most, mixed->served / alone - 1);
      ++cases;
      passed = passed && mixed->served >= alone * (1 - 1e-6) &&
               bisected->served >= mixed->served * (1 - 2 * kMaxLoss);
    }
    const std::string from = absl::StrFormat("%+.0f", 100 * least);
    const std::string to = absl::StrFormat("%+.0f", 100 * most);
    absl::StrAppendFormat(&by_budget, "%s%s %% at %.0f USD/h", by_budget.empty() ? "" : ", ",
                          from == to ? from : from + " to " + to, budget);
  }
  std::printf("  mean: %+.0f %%\n", 100 * (sum / cases - 1));
  AddRow(
      "Demystifying: a mix of rented cards against the best of one kind", "+20 %",
      absl::StrFormat("%+.0f %% on average of %d: %s", 100 * (sum / cases - 1), cases, by_budget),
      rows);
  return passed;
}

int Main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const char* runfiles = std::getenv("RUNFILES_DIR");
  Headlines headlines;
  if (absl::Status s =
          headlines.Read(runfiles != nullptr ? fs::path(runfiles) / "tessera" : fs::path("."));
      !s.ok()) {
    std::fprintf(stderr, "%s\n", std::string(s.message()).c_str());
    return 1;
  }
  Rows hexgen2, thunderserve, cost;
  bool passed = CostEfficiency(headlines, &cost);
  passed = ThunderServe(headlines, &thunderserve) && passed;
  passed = HexGen2(headlines, &hexgen2) && passed;
  std::printf("\n| claim | the paper | ours |\n|---|---|---|\n");
  for (const Rows* rows : {&hexgen2, &thunderserve, &cost}) {
    for (const std::string& row : *rows) std::printf("%s\n", row.c_str());
  }
  std::printf("\n");
  std::printf("%s\n", passed ? "all bars met" : "A BAR WAS MISSED");
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace tessera::scheduler

int main() { return tessera::scheduler::Main(); }
