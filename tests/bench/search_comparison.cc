// What each search reaches, on every example of deploy/clusters and on generated clusters, some of
// them on which splitting is worth much, judged by the planner: value, gap, candidates judged,
// seconds of one core, and for throughput what each plan serves in a simulation, where the same
// requests come to all, as many as `best` promises; of what `best` kept that is the plan which the
// planner then chooses by simulation, as users get it. Bars: nowhere is `best` below the best of
// the others by more than 0.1 %, nor in the simulation by more than 2 %, and nowhere does it take
// longer than the fastest other search that reaches its value within 1 %. Lists of where it does
// are printed at the end, after the examples as the table of scheduler/README.md.
//
//   search_comparison [GENERATED=50] [SECONDS=60] [LOSSES_FOLDER] [ONLY] [TABLE] [OBJECTIVE]
//
// The whole bar takes hours of one core; fewer clusters or seconds show less, and a table of less.
// The searches other than `best` are stopped after SECONDS of one core and marked so. Clusters
// where `best` loses go to LOSSES_FOLDER as files. ONLY: a part of the names of the clusters
// wanted. TABLE: what an earlier run printed; searches other than `best` are deterministic and
// taken from there where it has them and they were not stopped before SECONDS. OBJECTIVE:
// throughput (on a market with a budget: within it), goodput (TTFT <= 3 s, TPOT <= 150 ms for 90 %
// of the requests) or price (for half of what the whole cluster serves; the value is USD/h then).
// The model is Llama-2-70B; where that does not fit, Llama-2-13B, else Llama-3-8B; the lengths are
// those of azure_conversation. A fifth as many clusters have others of either and some a limit of
// TPOT: there seconds are told and no bar, as some searches end in a tenth of one.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/planner/planner.h"
#include "scheduler/search/searches.h"
#include "tests/bench/planned_clusters.h"
#include "tests/scheduler/search/seeded_cluster.h"

namespace tessera::scheduler {
namespace {

namespace fs = std::filesystem;
constexpr double kMaxLoss = 0.001;
constexpr double kRoundingOfTable = 5e-4;   // of values that an earlier run printed
constexpr double kMaxSimulatedLoss = 0.02;  // what the planner calls clearly better
constexpr int64_t kSimulatedRequests = 30000;
constexpr double kReached = 0.01;       // off the value of `best`: as good
constexpr double kClockSeconds = 0.02;  // what the clock and the system add to either
constexpr const char* kModels[] = {"Llama-2-70B", "Llama-2-13B", "Llama-3-8B"};

// Of the processor: a busy machine gives the same figures. Searches have one thread.
double Seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Instance {
  std::string name;
  std::string text;
  Goal goal = Goal::kThroughput;
  std::string model = "";       // "": the first of kModels that fits
  RequestLengths lengths = {};  // none: those of the conversation
  double max_tpot_seconds = 0;
};

struct Variation {
  const char* model;
  RequestLengths lengths;
  double max_tpot_seconds;
};
constexpr Variation kVariations[] = {
    {"Qwen3-30B-A3B", {1155, 211, 1}, 0.06}, {"Llama-2-13B", {200, 600, 1}, 0},
    {"LLaMA-30B", {512, 128, 1}, 0.2},       {"Mixtral-8x7B", {1155, 211, 1}, 0},
    {"Qwen2.5-14B", {3000, 500, 1}, 0},      {"Qwen3-30B-A3B", {200, 600, 1}, 0},
    {"Llama-2-13B", {2000, 30, 1}, 0.1},     {"Qwen3-30B-A3B", {512, 128, 1}, 0},
    {"Mixtral-8x7B", {512, 128, 1}, 0.1},    {"LLaMA-30B", {200, 600, 1}, 0},
};

struct Reached {
  std::string why_not;  // empty: there is a plan
  double value = 0;     // requests/s; where the least price is asked for, hours per USD
  double upper_bound = 0;
  int64_t evaluations = 0;
  bool interrupted = false;
  double seconds = 0;
  double simulated = 0;  // requests/s; 0: not simulated
  v1::DeploymentPlan plan;
};

class Comparison {
 public:
  Comparison(double limit_seconds, std::string losses, Goal goal)
      : limit_seconds_(limit_seconds), losses_folder_(std::move(losses)), goal_(goal) {}

  absl::Status Read(const fs::path& root) {
    absl::StatusOr<v1::DeviceCatalogue> catalogue = BuiltInDevices();
    if (!catalogue.ok()) return catalogue.status();
    catalogue_ = *std::move(catalogue);
    const absl::Status read =
        ReadDocumentFile((root / "deploy/workloads/azure_conversation.yaml").string(), &workload_);
    if (goal_ == Goal::kGoodput) {
      v1::ServiceObjectives& limits = *workload_.mutable_objectives();
      limits.set_time_to_first_token_seconds(3);
      limits.set_time_per_output_token_seconds(0.15);
      limits.set_attainment(0.9);
    }
    return read;
  }

  // What an earlier run printed: rows of cluster and model, search, value, gap, candidates,
  // seconds.
  absl::Status ReadTable(const std::string& path) {
    std::ifstream file(path);
    if (!file) return absl::NotFoundError(path + ": no such table");
    for (std::string line; std::getline(file, line);) {
      std::vector<std::string> cells;
      std::stringstream rest(line);
      for (std::string cell; std::getline(rest, cell, '|');) {
        const size_t from = cell.find_first_not_of(' '), to = cell.find_last_not_of(' ');
        cells.push_back(from == std::string::npos ? "" : cell.substr(from, to - from + 1));
      }
      if (cells.size() < 7 || !FindSearch(cells[2]).ok()) continue;
      Reached& reached = earlier_[{cells[1], cells[2]}];
      const double shown = std::atof(cells[3].c_str());
      if (shown > 0) {
        reached.value = Shown(shown);
      } else {
        reached.why_not = cells[3];
      }
      reached.evaluations = std::atoll(cells[5].c_str());
      reached.seconds = std::atof(cells[6].c_str());
      if (cells.size() > 7) reached.simulated = std::atof(cells[7].c_str());
      reached.interrupted = cells[6].find("stopped") != std::string::npos;
      if (reached.interrupted && reached.seconds < limit_seconds_)
        earlier_.erase({cells[1], cells[2]});
    }
    return absl::OkStatus();
  }

  // Clusters where `best` is below another search or has no plan, where it is below another in the
  // simulation, and where it is slower than one that is as good.
  const std::vector<std::string>& losses() const { return lost_; }
  const std::vector<std::string>& simulated_losses() const { return lost_simulated_; }
  const std::vector<std::string>& slower() const { return slower_; }
  const std::vector<std::string>& slower_elsewhere() const { return slower_elsewhere_; }
  int matched() const { return matched_; }  // clusters where another search is as good

  // The examples as in scheduler/README.md: a row each, a column for each search.
  void PrintExamples() const {
    if (examples_.empty()) return;
    std::vector<std::string> names = {"best", "exact", "hexgen", "hexgen2", "thunderserve"};
    for (const std::string& name : SearchNames()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    std::printf("\n| cluster, model |");
    for (const std::string& name : names) std::printf(" %s |", name.c_str());
    std::printf("\n|---|");
    for (size_t i = 0; i < names.size(); ++i) std::printf("---|");
    std::printf("\n");
    for (const auto& [row, reached] : examples_) {
      double most = 0;
      for (const auto& [name, result] : reached) most = std::max(most, result.value);
      std::printf("| %s |", row.c_str());
      for (const std::string& name : names)
        std::printf(" %s |", Cell(name, reached.at(name), most).c_str());
      std::printf("\n");
    }
  }

  void Compare(const Instance& instance) {
    PlannerInput input;
    input.catalogue = catalogue_;
    input.workload = workload_;
    input.cluster_file = instance.name;
    if (absl::Status s = ReadDocument(instance.text, instance.name, &input.cluster); !s.ok()) {
      lost_.push_back(instance.name + ": " + std::string(s.message()));
      return;
    }
    Vary(instance, &input.workload);
    std::vector<std::string> models(std::begin(kModels), std::end(kModels));
    if (!instance.model.empty()) models = {instance.model};
    for (const std::string& model : models) {
      input.model = *BuiltInModel(model);
      std::map<std::string, Reached> reached;
      if (goal_ == Goal::kPrice) {
        input.workload.set_requests_per_second(0);
        const Reached all = Plan(input, Goal::kThroughput, "best");
        input.workload.set_requests_per_second(all.why_not.empty() ? all.value / 2 : 1);
      }
      reached["best"] = Plan(input, instance.goal, "best");
      if (!reached["best"].why_not.empty() && model != models.back()) continue;
      for (const std::string& name : SearchNames()) {
        if (name == "best") continue;
        const auto known = earlier_.find({instance.name + ", " + model, name});
        reached[name] = known != earlier_.end() ? known->second : Plan(input, instance.goal, name);
      }
      if (instance.goal == Goal::kThroughput || instance.goal == Goal::kBudget)
        SimulateAll(input, instance.goal, &reached);
      Report(instance, model, reached);
      return;
    }
  }

 private:
  static void Vary(const Instance& instance, v1::Workload* workload) {
    if (instance.model.empty()) return;
    workload->clear_classes();
    auto& one = *workload->add_classes();
    v1::LengthSample& lengths = *one.add_lengths();
    lengths.set_prompt_tokens(static_cast<int64_t>(instance.lengths.prompt_tokens));
    lengths.set_output_tokens(static_cast<int64_t>(instance.lengths.output_tokens));
    if (instance.max_tpot_seconds > 0) {
      workload->mutable_objectives()->set_time_per_output_token_seconds(instance.max_tpot_seconds);
    }
  }

  Reached Plan(const PlannerInput& input, Goal goal, const std::string& name) const {
    Reached reached;
    PlannerOptions options;
    options.goal = goal;
    options.given_search = [&](const PlacementProblem& asked) {
      PlacementProblem problem = asked;
      const double start = Seconds();
      if (name != "best")
        problem.watch.stop = [&, start] { return Seconds() - start > limit_seconds_; };
      absl::StatusOr<Placement> placement = (*FindSearch(name))(problem);
      reached.seconds = Seconds() - start;
      if (!placement.ok()) return placement;
      reached.upper_bound = placement->upper_bound;
      reached.evaluations = placement->evaluations;
      reached.interrupted = placement->interrupted;
      return placement;
    };
    const absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(input, options);
    if (plan.ok()) {
      reached.value = goal == Goal::kPrice ? 1 / plan->certificate().value()
                                           : plan->prediction().requests_per_second();
      if (goal == Goal::kPrice) reached.upper_bound = 0;
      reached.plan = *plan;
    } else {
      reached.why_not = plan.status().code() == absl::StatusCode::kFailedPrecondition
                            ? "too many devices"
                            : std::string(plan.status().message());
    }
    return reached;
  }

  void SimulateAll(const PlannerInput& input, Goal goal, std::map<std::string, Reached>* reached) {
    PlannerOptions options;
    options.goal = goal;
    options.simulate = true;
    options.given_search = *FindSearch("best");
    if (auto chosen = MakePlan(input, options); chosen.ok())
      reached->at("best").plan = *std::move(chosen);
    const auto workload =
        SamplesOf(input.workload, {}, input.model.max_positions(), input.cluster_file);
    const auto graph = MakeClusterGraph(input.cluster, input.catalogue, input.cluster_file);
    if (!workload.ok() || !graph.ok()) return;
    for (auto& [name, result] : *reached) {
      if (result.plan.replicas().empty()) continue;
      const auto replicas = ReplicasOfPlan(result.plan, *graph, {});
      const auto report =
          replicas.ok()
              ? SimulatePlan(*replicas, *workload, reached->at("best").value, kSimulatedRequests)
              : replicas.status();
      if (report.ok()) {
        result.simulated = report->steady_requests_per_second;
      } else {
        lost_simulated_.push_back(absl::StrFormat("%s, %s: %s", input.cluster_file, name,
                                                  std::string(report.status().message())));
      }
    }
  }

  // Value, bold where it is the best of the row; gap, or candidates where the others count them;
  // seconds.
  std::string Cell(const std::string& search, const Reached& result, double most) const {
    if (!result.why_not.empty()) return "-";
    const char* bold = result.value >= most * (1 - kMaxLoss) ? "**" : "";
    std::string cell = absl::StrFormat("%s%.3f%s", bold, Shown(result.value), bold);
    if (search == "best" && result.upper_bound > 0) {
      const double gap = std::max(0.0, 1 - result.value / result.upper_bound);
      absl::StrAppendFormat(&cell, "; gap %.2f %%", 100 * gap);
    } else if (search != "best" && result.evaluations > 0) {
      absl::StrAppendFormat(&cell, "; %d", result.evaluations);
    }
    absl::StrAppendFormat(&cell, "; %.1f s%s", result.seconds,
                          result.interrupted ? ", stopped" : "");
    return cell;
  }

  // As it is printed, and back.
  double Shown(double value) const { return goal_ == Goal::kPrice ? 1 / value : value; }

  void Report(const Instance& instance, const std::string& model,
              const std::map<std::string, Reached>& reached) {
    double others = 0;
    for (const auto& [name, result] : reached) {
      if (name != "best") others = std::max(others, result.value);
    }
    const Reached& best = reached.at("best");
    for (const auto& [name, result] : reached) {
      std::printf("| %s, %s | %s ", instance.name.c_str(), model.c_str(), name.c_str());
      if (!result.why_not.empty()) {
        std::printf("| %s | | | %.2f | |\n", result.why_not.substr(0, 60).c_str(), result.seconds);
        continue;
      }
      std::printf("| %.3f | ", Shown(result.value));
      const double rounding = result.plan.replicas().empty() ? kRoundingOfTable : 0;
      if (best.upper_bound > 0 && result.value - rounding > best.upper_bound * (1 + 1e-9))
        lost_.push_back(absl::StrFormat("%s: %s serves more than the bound", instance.name, name));
      if (best.upper_bound > 0)
        std::printf("%.2f %% ", 100 * (1 - result.value / best.upper_bound));
      std::printf("| ");
      if (result.evaluations > 0) std::printf("%ld ", static_cast<long>(result.evaluations));
      std::printf("| %.2f%s | ", result.seconds, result.interrupted ? ", stopped" : "");
      if (result.simulated > 0) std::printf("%.3f ", result.simulated);
      std::printf("|\n");
    }
    std::fflush(stdout);
    const fs::path file(instance.name);
    if (file.extension() == ".yaml")
      examples_.emplace_back(file.stem().string() + ", " + model, reached);
    NoteIfSlower(instance, reached);
    NoteIfSimulatedBelow(instance, reached);
    if (best.why_not.empty() && best.value >= others * (1 - kMaxLoss)) return;
    lost_.push_back(absl::StrFormat("%s: %.3f, another search %.3f (%.2f %% better)", instance.name,
                                    Shown(best.value), Shown(others),
                                    100 * (others / std::max(best.value, 1e-9) - 1)));
    if (losses_folder_.empty()) return;
    std::ofstream(fs::path(losses_folder_) / (fs::path(instance.name).stem().string() + ".yaml"))
        << "# " << model << ", azure_conversation: best " << Shown(best.value)
        << ", another search " << Shown(others) << "\n"
        << instance.text;
  }

  void NoteIfSlower(const Instance& instance, const std::map<std::string, Reached>& reached) {
    const Reached& best = reached.at("best");
    const std::pair<const std::string, Reached>* fastest = nullptr;
    for (const auto& entry : reached) {
      const Reached& other = entry.second;
      if (entry.first == "best" || !other.why_not.empty()) continue;
      if (other.value < best.value * (1 - kReached)) continue;
      if (fastest == nullptr || other.seconds < fastest->second.seconds) fastest = &entry;
    }
    if (fastest == nullptr) return;
    ++matched_;
    if (best.seconds <= fastest->second.seconds + kClockSeconds) return;
    std::vector<std::string>& slower = instance.model.empty() ? slower_ : slower_elsewhere_;
    slower.push_back(absl::StrFormat("%s: %.2f s, %s %.2f s", instance.name, best.seconds,
                                     fastest->first, fastest->second.seconds));
  }

  void NoteIfSimulatedBelow(const Instance& instance,
                            const std::map<std::string, Reached>& reached) {
    const double served = reached.at("best").simulated;
    for (const auto& [name, result] : reached) {
      if (result.simulated * (1 - kMaxSimulatedLoss) <= served) continue;
      lost_simulated_.push_back(absl::StrFormat("%s: %.3f, %s %.3f (%.2f %% better)", instance.name,
                                                served, name, result.simulated,
                                                100 * (result.simulated / served - 1)));
    }
  }

  const double limit_seconds_;
  const std::string losses_folder_;
  const Goal goal_;
  std::vector<std::string> lost_, lost_simulated_, slower_, slower_elsewhere_;
  int matched_ = 0;
  std::vector<std::pair<std::string, std::map<std::string, Reached>>> examples_;
  std::map<std::pair<std::string, std::string>, Reached> earlier_;  // by cluster, model; search
  v1::DeviceCatalogue catalogue_;
  v1::Workload workload_;
};

int DevicesOf(const Instance& instance) {
  v1::Cluster cluster;
  if (!ReadDocument(instance.text, instance.name, &cluster).ok()) return 0;
  int devices = 0;
  for (const v1::Machine& machine : cluster.machines()) {
    for (const v1::DeviceGroup& group : machine.devices())
      devices += std::max(1, machine.available()) * std::max(1, group.count());
  }
  return devices;
}

// The smallest first.
std::vector<Instance> Instances(const fs::path& root, int generated, Goal asked) {
  std::vector<Instance> instances;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "deploy/clusters")) {
    if (entry.path().extension() != ".yaml") continue;
    // The four workers are for the shipped model alone.
    if (entry.path().filename().string().starts_with("four_unlike_workers")) continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const bool budget =
        asked == Goal::kThroughput && text.str().find("budget:") != std::string::npos;
    instances.push_back({entry.path().filename(), text.str(), budget ? Goal::kBudget : asked});
  }
  for (int seed = 0; seed < generated; ++seed) {
    // 8 to 64 devices.
    const int devices = generated > 1 ? 8 + 56 * seed / (generated - 1) : 8;
    instances.push_back({"generated-" + std::to_string(seed) + "-" + std::to_string(devices),
                         tests::SeededCluster({seed, devices, 1 + seed % 3, true}), asked});
  }
  // A fifth as many on which splitting is worth much.
  for (int seed = 0; seed < generated / 5; ++seed) {
    const int devices = 8 + 56 * seed / std::max(1, generated / 5 - 1);
    instances.push_back({absl::StrFormat("splitting-%d-%d", seed, devices),
                         tests::SeededCluster({seed, devices, 1 + seed % 2, seed % 3 == 2, true}),
                         asked});
  }
  for (int seed = 0; seed < generated / 5; ++seed) {
    const int devices = 8 + 28 * seed / std::max(1, generated / 5 - 1);
    const Variation& other = kVariations[static_cast<size_t>(seed) % std::size(kVariations)];
    instances.push_back({absl::StrFormat("varied-%d-%d", seed, devices),
                         tests::SeededCluster({1000 + seed, devices, 1 + seed % 3, true}), asked,
                         other.model, other.lengths, other.max_tpot_seconds});
  }
  std::sort(instances.begin(), instances.end(), [](const Instance& a, const Instance& b) {
    return std::pair(DevicesOf(a), a.name) < std::pair(DevicesOf(b), b.name);
  });
  return instances;
}

int Main(int argc, char** argv) {
  const int generated = argc > 1 ? std::atoi(argv[1]) : 50;
  const std::map<std::string, Goal> goals = {
      {"throughput", Goal::kThroughput}, {"goodput", Goal::kGoodput}, {"price", Goal::kPrice}};
  const auto goal = goals.find(argc > 6 ? argv[6] : "throughput");
  if (goal == goals.end()) {
    std::fprintf(stderr, "%s: OBJECTIVE is throughput, goodput or price\n", argv[6]);
    return 2;
  }
  Comparison comparison(argc > 2 ? std::atof(argv[2]) : 60, argc > 3 ? argv[3] : "", goal->second);
  const char* runfiles = std::getenv("RUNFILES_DIR");
  const fs::path root = runfiles != nullptr ? fs::path(runfiles) / "tessera" : fs::path(".");
  if (absl::Status s = comparison.Read(root); !s.ok()) {
    std::fprintf(stderr, "%s\n", std::string(s.message()).c_str());
    return 1;
  }
  if (argc > 5 && *argv[5] != '\0') {
    if (absl::Status s = comparison.ReadTable(argv[5]); !s.ok()) {
      std::fprintf(stderr, "%s\n", std::string(s.message()).c_str());
      return 1;
    }
  }
  std::printf(
      "| cluster, model | search | %s | below the bound | candidates | core seconds | "
      "simulated |\n|---|---|---|---|---|---|---|\n",
      goal->second == Goal::kPrice ? "USD/h" : "requests/s");
  int clusters = 0;
  const std::string only = argc > 4 ? argv[4] : "";
  for (const Instance& instance : Instances(root, generated, goal->second)) {
    if (instance.name.find(only) == std::string::npos) continue;
    comparison.Compare(instance);
    ++clusters;
  }
  comparison.PrintExamples();
  std::printf("\nbest below another search on %zu of %d clusters\n", comparison.losses().size(),
              clusters);
  for (const std::string& loss : comparison.losses()) std::printf("  %s\n", loss.c_str());
  std::printf("best below another search in the simulation: %zu cases\n",
              comparison.simulated_losses().size());
  for (const std::string& loss : comparison.simulated_losses()) std::printf("  %s\n", loss.c_str());
  std::printf("best slower than a search as good on %zu of %d clusters where there is one\n",
              comparison.slower().size(), comparison.matched());
  for (const std::string& slow : comparison.slower()) std::printf("  %s\n", slow.c_str());
  for (const std::string& slow : comparison.slower_elsewhere())
    std::printf("  without a bar: %s\n", slow.c_str());
  const bool met = comparison.losses().empty() && comparison.simulated_losses().empty() &&
                   comparison.slower().empty();
  std::printf("%s\n", met ? "all bars met" : "A BAR WAS MISSED");
  return met ? 0 : 1;
}

}  // namespace
}  // namespace tessera::scheduler

int main(int argc, char** argv) { return tessera::scheduler::Main(argc, argv); }
