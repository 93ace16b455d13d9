#include "coordinator/deployment/cluster_planner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/input/draft_choice.h"
#include "scheduler/input/workload_file.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

class WaitingPlanner {
 public:
  WaitingPlanner(ClusterQuestion start, v1::Model model, std::function<double()> now_seconds,
                 ReadDraftCounts draft_counts)
      : start_(std::move(start)),
        model_(std::move(model)),
        now_seconds_(std::move(now_seconds)),
        draft_counts_(std::move(draft_counts)) {}

  absl::StatusOr<v1::DeploymentPlan> Plan(const std::map<std::string, WorkerRecord>& workers) {
    std::set<std::string> live;
    for (const auto& [name, worker] : workers) {
      if (worker.state != v1::WORKER_STATE_LOST) live.insert(name);
    }
    if (live.empty()) {
      tried_.clear();
      return absl::UnavailableError(absl::StrCat(
          "no worker has registered yet", HowToName(MissingDevices(start_.input.cluster, {}))));
    }
    const double now = now_seconds_();
    if (first_seconds_ < 0) first_seconds_ = now;
    const std::vector<std::string> missing = MissingDevices(start_.input.cluster, workers);
    if (!missing.empty() && !planned_ && now - first_seconds_ < start_.wait_seconds) {
      const std::string why =
          absl::StrCat("planning waits for ", Some(missing), ", for at most ", start_.wait_seconds,
                       " s (--plan-wait)", HowToName(missing));
      if (live != waited_for_) Logger("coordinator").info("{}", why);
      waited_for_ = live;
      return absl::UnavailableError(why);
    }
    // The same workers make the same plan, or none.
    if (live == tried_) return absl::UnavailableError("");
    tried_ = live;
    for (const std::string& device : missing)
      Logger("coordinator").warn("planning without {}, which is not there", device);
    if (draft_counts_ != nullptr) CountOnMeasured(draft_counts_(), &start_.options.drafts);
    absl::StatusOr<v1::DeploymentPlan> plan = PlanForRegistered(start_, model_, workers);
    if (plan.ok()) {
      planned_ = true;
      Logger("coordinator")
          .info("planned {} replicas for {} workers: up to {:.3f} requests/s",
                plan->replicas_size(), live.size(), plan->prediction().requests_per_second());
      return plan;
    }
    const std::string why = absl::StrCat("no plan: ", std::string(plan.status().message()));
    Logger("coordinator").error("{}", why);
    return absl::Status(plan.status().code(), why);
  }

 private:
  static std::string Some(const std::vector<std::string>& devices) {
    constexpr size_t kMaxNamed = 8;
    const size_t named = std::min(devices.size(), kMaxNamed);
    std::string text = absl::StrJoin(devices.begin(), devices.begin() + named, ", ");
    if (devices.size() > named) absl::StrAppend(&text, " and ", devices.size() - named, " more");
    return text;
  }

  std::string HowToName(const std::vector<std::string>& missing) const {
    if (missing.empty()) return "";
    return absl::StrCat("; workers are named as ", start_.input.cluster_file,
                        " names devices: tessera-worker --name ", missing.front());
  }

  ClusterQuestion start_;
  const v1::Model model_;
  const std::function<double()> now_seconds_;
  const ReadDraftCounts draft_counts_;  // null: none
  double first_seconds_ = -1;           // when the first worker was seen
  bool planned_ = false;                // once: who is missing from then on is not waited for here
  std::set<std::string> waited_for_, tried_;
};

}  // namespace

absl::StatusOr<v1::DraftTerms> DraftsOfWorkers(const v1::ConfigureRequest& configure) {
  scheduler::DraftRequest request;
  request.most = configure.max_draft_tokens();
  switch (configure.speculation()) {
    case v1::SPECULATION_NGRAM: request.speculate = "ngram"; break;
    case v1::SPECULATION_MTP: request.speculate = "mtp"; break;
    case v1::SPECULATION_DRAFT_MODEL:
      request.speculate = absl::StrCat("draft:", configure.model().draft_model().folder());
      break;
    default: return v1::DraftTerms();
  }
  v1::Model model = configure.model();  // says already what it holds
  return scheduler::ChooseDrafts(request, configure.weight_dtype(), configure.kv_dtype(), &model);
}

absl::StatusOr<ClusterQuestion> ReadPlanAtStart(const std::string& cluster_file,
                                                const std::string& workload_file,
                                                double wait_seconds, std::optional<bool> split,
                                                const std::string& prefer,
                                                const v1::ConfigureRequest& configure) {
  ClusterQuestion start;
  start.wait_seconds = wait_seconds;
  scheduler::PlannerOptions& options = start.options;
  options.preference.prefer = scheduler::PreferenceNamed(prefer);
  options.allow_split = split.value_or(true);
  options.require_split = split.value_or(false);
  options.weight_dtype = configure.weight_dtype();
  options.kv_dtype = configure.kv_dtype();
  if (configure.max_batched_tokens() > 0) options.max_step_tokens = configure.max_batched_tokens();
  if (configure.max_sequences() > 0) options.max_sequences = configure.max_sequences();
  options.context_tokens = configure.max_model_len_tokens();
  if (configure.block_tokens() > 0) options.block_tokens = configure.block_tokens();
  absl::StatusOr<v1::DraftTerms> drafts = DraftsOfWorkers(configure);
  if (!drafts.ok()) return drafts.status();
  options.drafts = *std::move(drafts);
  scheduler::PlannerInput& input = start.input;
  input.cluster_file = cluster_file;
  if (absl::Status s = ReadDocumentFile(cluster_file, &input.cluster); !s.ok()) return s;
  absl::StatusOr<v1::DeviceCatalogue> catalogue = scheduler::BuiltInDevices();
  if (!catalogue.ok()) return catalogue.status();
  // Check the description now, so that errors appear at start.
  const auto graph = scheduler::MakeClusterGraph(input.cluster, *catalogue, cluster_file);
  if (!graph.ok()) return graph.status();
  if (workload_file.empty()) {
    input.workload_file = "--workload";
    v1::LengthSample* lengths = input.workload.add_classes()->add_lengths();
    lengths->set_prompt_tokens(1155);
    lengths->set_output_tokens(211);
  } else {
    input.workload_file = workload_file;
    absl::StatusOr<scheduler::WorkloadFile> file = scheduler::ReadWorkloadFile(workload_file);
    if (!file.ok()) return file.status();
    input.workload = std::move(file->workload);
    input.trace = std::move(file->trace);
    const auto samples = scheduler::SamplesOf(input.workload, input.trace, 0, workload_file);
    if (!samples.ok()) return samples.status();
  }
  return start;
}

absl::StatusOr<PlanForWorkers> PlannerOfCluster(
    const std::string& cluster_file, const std::string& workload_file, double wait_seconds,
    std::optional<bool> split, const std::string& prefer, const v1::ConfigureRequest& configure,
    std::function<double()> now_seconds, ReadDraftCounts draft_counts) {
  absl::StatusOr<ClusterQuestion> start =
      ReadPlanAtStart(cluster_file, workload_file, wait_seconds, split, prefer, configure);
  if (!start.ok()) return start.status();
  auto planner = std::make_shared<WaitingPlanner>(*std::move(start), configure.model(),
                                                  std::move(now_seconds), std::move(draft_counts));
  return [planner](const std::map<std::string, WorkerRecord>& workers) {
    return planner->Plan(workers);
  };
}

}  // namespace tessera::coordinator
