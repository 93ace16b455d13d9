// The desk where planning requests wait, what is measured beside a plan, and plans of what
// registered.
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "coordinator/deployment/cluster_planner.h"
#include "coordinator/deployment/measured_rates.h"
#include "coordinator/deployment/plan_terms.h"
#include "coordinator/deployment/planning_desk.h"
#include "coordinator/deployment/registered_cluster.h"
#include "coordinator/flow/draft_counts.h"
#include "proto/document.h"
#include "proto/layers/layers.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/planner/preference.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/note_text.h"

namespace tessera::coordinator {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

v1::PlanRequest Request() {
  v1::PlanRequest request;
  REQUIRE(ReadDocument(R"(
cluster: {machines: [{name: a, devices: [{kind: RTX4090}]}]}
workload: {classes: [{lengths: [{prompt_tokens: 100, output_tokens: 20}]}]}
)",
                       "request", &request)
              .message() == "");
  return request;
}

PlanningDeskOptions Options() {
  PlanningDeskOptions options;
  options.served_model = *scheduler::BuiltInModel("Qwen2.5-0.5B");
  options.now_seconds = Now;
  options.running = [] { return v1::GetPlanReply(); };
  return options;
}

using Catch::Contains;

WorkerRecord Worker(int64_t gib) {
  WorkerRecord record;
  record.state = v1::WORKER_STATE_REGISTERED;
  record.registration.mutable_device()->set_memory_bytes(gib << 30);
  return record;
}

ClusterQuestion Start() {
  ClusterQuestion start;
  start.input.cluster_file = "cluster.yaml";
  REQUIRE(ReadDocument(R"(
machines:
- {name: a, devices: [{kind: RTX4090, count: 3}]}
- {name: b, devices: [{kind: L4}]}
tiers: {site: {bandwidth: 10 Gbit/s, latency: 50 us}}
links: [{from: a, to: b, link: {bandwidth: 1 Gbit/s, latency: 1 ms}}]
)",
                       "cluster.yaml", &start.input.cluster)
              .message() == "");
  auto* lengths = start.input.workload.add_classes()->add_lengths();
  lengths->set_prompt_tokens(100);
  lengths->set_output_tokens(20);
  return start;
}

}  // namespace

TEST_CASE("the desk plans for the served model, and refuses what cannot be") {
  PlanningDesk desk(Options());
  std::promise<absl::StatusOr<v1::PlanReply>> good, bad;
  desk.Plan(Request(), [&](auto reply) { good.set_value(std::move(reply)); });
  v1::PlanRequest request = Request();
  request.set_search("guess");
  desk.Plan(request, [&](auto reply) { bad.set_value(std::move(reply)); });
  const auto reply = good.get_future().get();
  REQUIRE(reply.status().message() == "");
  CHECK(reply->plan().model().name() == "Qwen2.5-0.5B");
  CHECK_THAT(reply->text(), Contains("a/0"));
  const auto refused = bad.get_future().get().status();
  CHECK(absl::IsInvalidArgument(refused));
}

TEST_CASE("a plan for the served model says what the move from the plan in force costs") {
  const auto answer = [](const v1::PlanRequest& request, const v1::DeploymentPlan& in_force) {
    PlanningDeskOptions options = Options();
    options.running = [&in_force] {
      v1::GetPlanReply reply;
      *reply.mutable_plan() = in_force;
      return reply;
    };
    PlanningDesk desk(std::move(options));
    std::promise<absl::StatusOr<v1::PlanReply>> done;
    desk.Plan(request, [&](auto reply) { done.set_value(std::move(reply)); });
    const auto reply = done.get_future().get();
    REQUIRE(reply.status().message() == "");
    return reply->plan();
  };
  const v1::DeploymentPlan first = answer(Request(), v1::DeploymentPlan());
  CHECK(first.move().stay_size() + first.move().rebuilt_size() == 0);
  CHECK(answer(Request(), first).move().stay_size() == first.replicas_size());
  v1::PlanRequest other = Request();
  other.mutable_model()->set_name("Qwen2.5-1.5B");
  CHECK(answer(other, first).move().rebuilt().empty());  // nothing of it runs here
}

TEST_CASE("a coordinator's workload may be a trace, or name one") {
  const std::string folder = std::getenv("TEST_TMPDIR");
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder + "/" + name) << text;
    return folder + "/" + name;
  };
  const std::string cluster =
      write("cluster.yaml", "machines: [{name: a, devices: [{kind: RTX4090}]}]\n");
  const std::string trace = write("t.csv",
                                  "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                  "2023-11-16 18:15:46,300,20\n2023-11-16 18:15:48,500,40\n");
  v1::ConfigureRequest configure;
  *configure.mutable_model() = *scheduler::BuiltInModel("Qwen2.5-0.5B");
  for (const std::string& workload :
       {trace, write("w.yaml", "trace: t.csv\n"), write("c.yaml", "classes: [{trace: t.csv}]\n")}) {
    INFO(workload);
    const auto planner = PlannerOfCluster(cluster, workload, 0, {}, "", configure, Now);
    REQUIRE(planner.status().message() == "");
    const auto plan = (*planner)({{"a/0", Worker(16)}});
    REQUIRE(plan.status().message() == "");
    CHECK(plan->basis().prompt_tokens() == 400);
    CHECK(plan->basis().output_tokens() == 30);
  }
  const auto gone =
      PlannerOfCluster(cluster, write("g.yaml", "trace: gone.csv\n"), 0, {}, "", configure, Now);
  CHECK_THAT(std::string(gone.status().message()), Contains("gone.csv"));
}

TEST_CASE("a coordinator's own plan counts on the drafts that its workers are to try") {
  const std::string cluster = std::string(std::getenv("TEST_TMPDIR")) + "/drafts.yaml";
  std::ofstream(cluster) << "machines: [{name: a, devices: [{kind: RTX4090}]}]\n";
  v1::ConfigureRequest configure;
  *configure.mutable_model() = *scheduler::BuiltInModel("Qwen2.5-0.5B");
  SetDraftHead(configure.model().kinds(0), configure.mutable_model());
  configure.set_max_draft_tokens(2);
  const auto planned = [&] {
    const auto planner = PlannerOfCluster(cluster, "", 0, {}, "", configure, Now);
    REQUIRE(planner.status().message() == "");
    const auto plan = (*planner)({{"a/0", Worker(16)}});
    REQUIRE(plan.status().message() == "");
    return *plan;
  };
  const v1::DeploymentPlan off = planned();
  CHECK_FALSE(off.assumptions().planning().has_drafts());
  configure.set_speculation(v1::SPECULATION_MTP);
  configure.mutable_model()->mutable_draft_head()->set_used(true);
  const v1::DeploymentPlan mtp = planned();
  const v1::DraftTerms& terms = mtp.assumptions().planning().drafts();
  CHECK(terms.source() == "mtp");
  CHECK(terms.draft_tokens() == 2);
  CHECK(mtp.replicas(0).stages(0).workers(0).weight_bytes() >
        off.replicas(0).stages(0).workers(0).weight_bytes());
  configure.set_speculation(v1::SPECULATION_NGRAM);
  configure.mutable_model()->mutable_draft_head()->set_used(false);
  CHECK(planned().assumptions().planning().drafts().source() == "ngram");
}

TEST_CASE("a coordinator that plans again counts on the drafts that stood meanwhile") {
  const std::string cluster = std::string(std::getenv("TEST_TMPDIR")) + "/seen.yaml";
  std::ofstream(cluster) << "machines: [{name: a, devices: [{kind: RTX4090, count: 2}]}]\n";
  v1::ConfigureRequest configure;
  *configure.mutable_model() = *scheduler::BuiltInModel("Qwen2.5-0.5B");
  SetDraftHead(configure.model().kinds(0), configure.mutable_model());
  configure.mutable_model()->mutable_draft_head()->set_used(true);
  configure.set_speculation(v1::SPECULATION_MTP);
  DraftCounts counts;
  const auto planner =
      PlannerOfCluster(cluster, "", 0, {}, "", configure, Now, [&counts] { return counts; });
  REQUIRE(planner.status().message() == "");
  const auto acceptance = [&](std::map<std::string, WorkerRecord> workers) {
    const auto plan = (*planner)(workers);
    REQUIRE(plan.status().message() == "");
    return plan->assumptions().planning().drafts().acceptance();
  };
  CHECK(acceptance({{"a/0", Worker(16)}}) == 0.7);
  // A list has three tokens: 0.35, 0.35^2 and 0.35^3 of them stand.
  counts = {
      .lists = 5000, .tokens = 15000, .accepted_tokens = 5000 * 0.515375, .asked_steps = 5000};
  counts.asked_accepted_tokens = counts.accepted_tokens;
  CHECK(acceptance({{"a/0", Worker(16)}, {"a/1", Worker(16)}}) == Approx(0.35).epsilon(1e-3));
}

TEST_CASE("the desk counts on the drafts that stood, where a request has the same") {
  PlanningDeskOptions options = Options();
  SetDraftHead(options.served_model.kinds(0), &options.served_model);
  options.drafts = [] {
    v1::DraftTerms seen;
    seen.set_source("mtp");
    seen.set_acceptance(0.45);
    seen.set_acceptance_origin(v1::FIGURE_ORIGIN_MEASURED);
    return seen;
  };
  PlanningDesk desk(options);
  const auto answer = [&desk](const v1::PlanRequest& request) {
    std::promise<absl::StatusOr<v1::PlanReply>> done;
    desk.Plan(request, [&](auto reply) { done.set_value(std::move(reply)); });
    auto reply = done.get_future().get();
    REQUIRE(reply.status().message() == "");
    return *std::move(reply);
  };
  v1::PlanRequest request = Request();
  request.mutable_options()->set_speculate("mtp");
  const v1::PlanReply measured = answer(request);
  CHECK(measured.plan().assumptions().planning().drafts().acceptance() == 0.45);
  const auto lines = scheduler::AssumptionLines(measured.plan().assumptions());
  CHECK_THAT(absl::StrJoin(lines, "\n"), Contains("45 % are accepted") && Contains("(measured,"));
  request.mutable_options()->set_draft_acceptance(0.8);  // who asks knows better
  CHECK(answer(request).plan().assumptions().planning().drafts().acceptance() == 0.8);
  request.mutable_options()->clear_draft_acceptance();
  request.mutable_options()->set_speculate("ngram");  // workers try others
  CHECK(answer(request).plan().assumptions().planning().drafts().acceptance() == 0);
}

TEST_CASE("a stopped desk answers everyone, and takes no more") {
  PlanningDesk desk(Options());
  desk.Stop();
  absl::Status status;
  desk.Plan(Request(), [&](const auto& reply) { status = reply.status(); });
  CHECK(absl::IsUnavailable(status));
}

TEST_CASE("a full desk says so at once") {
  PlanningDeskOptions options = Options();
  options.max_waiting = 0;
  PlanningDesk desk(std::move(options));
  absl::Status status;
  desk.Plan(Request(), [&](const auto& reply) { status = reply.status(); });
  CHECK_THAT(std::string(status.message()), Contains("wait already"));
}

TEST_CASE("plans need the admin key, and without one an open loopback") {
  PlanningDeskOptions options = Options();
  CHECK(absl::IsPermissionDenied(PlanningDesk(options).CheckAdmin("")));
  options.admin.open = true;
  CHECK(PlanningDesk(options).CheckAdmin("").ok());
  options.admin.key = "secret";
  for (const char* wrong : {"", "Bearer users", "Bearer ", "secret"})
    CHECK(absl::IsUnauthenticated(PlanningDesk(options).CheckAdmin(wrong)));
  CHECK(PlanningDesk(options).CheckAdmin("Bearer secret").ok());
  options.admin.place = [] { return "/run/admin_key"; };
  CHECK_THAT(std::string(PlanningDesk(options).CheckAdmin("").message()),
             Contains("it lies in /run/admin_key"));
}

TEST_CASE("rates are those of the last ten seconds") {
  prometheus::Registry registry;
  auto& first = prometheus::BuildHistogram()
                    .Name("vllm:time_to_first_token_seconds")
                    .Register(registry)
                    .Add({}, prometheus::Histogram::BucketBoundaries{1});
  auto& gap = prometheus::BuildHistogram()
                  .Name("vllm:inter_token_latency_seconds")
                  .Register(registry)
                  .Add({}, prometheus::Histogram::BucketBoundaries{1});
  MeasuredRates rates;
  CHECK(rates.Recent().output_tokens_per_second() == 0);
  for (int second = 0; second <= 30; ++second) {
    rates.Sample(registry.Collect(), second);
    const double pace = second < 15 ? 5 : 1;  // the earlier, slower tokens are forgotten
    first.Observe(2 * pace);
    for (int i = 0; i < 4; ++i) gap.Observe(0.1 * pace);
  }
  const v1::Prediction recent = rates.Recent();
  CHECK(recent.output_tokens_per_second() == Approx(5));
  CHECK(recent.time_to_first_token_seconds() == Approx(2));
  CHECK(recent.time_per_output_token_seconds() == Approx(0.1));
}

TEST_CASE("devices that no worker runs on are not waited for") {
  ClusterQuestion start = Start();
  v1::Machine& machine = *start.input.cluster.add_machines();
  machine.set_name("old");
  machine.add_devices()->set_kind("V100");
  machine.add_devices()->set_kind("T4");
  CHECK(MissingDevices(start.input.cluster, {}) ==
        std::vector<std::string>{"a/0", "a/1", "a/2", "b/0", "old/1"});
}

TEST_CASE("a plan is made of the devices that registered, with the memory they report") {
  const ClusterQuestion start = Start();
  const v1::Model model = *scheduler::BuiltInModel("Qwen2.5-0.5B");
  std::map<std::string, WorkerRecord> workers = {
      {"a/0", Worker(8)}, {"a/2", Worker(16)}, {"c/0", Worker(8)}};
  CHECK(MissingDevices(start.input.cluster, workers) == std::vector<std::string>{"a/1", "b/0"});
  const auto plan = PlanForRegistered(start, model, workers);
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->replicas_size() == 2);
  std::map<std::string, int64_t> offered;
  for (const v1::Replica& replica : plan->replicas()) {
    REQUIRE(replica.stages_size() == 1);
    REQUIRE(replica.stages(0).workers_size() == 1);
    const v1::PlannedWorker& worker = replica.stages(0).workers(0);
    offered[worker.device()] = worker.available_bytes();
  }
  REQUIRE(offered.contains("a/0"));
  REQUIRE(offered.contains("a/2"));  // not a/1, its place among those that are there
  CHECK(offered["a/2"] > offered["a/0"]);
  bool told = false;
  for (const std::string& line : scheduler::NoteLines(*plan))
    told = told || line.find("worker c/0 is not in cluster.yaml") != std::string::npos;
  CHECK(told);
  for (const std::string& line : scheduler::AssumptionLines(plan->assumptions()))
    CHECK_THAT(line, !Contains("registered"));  // the catalogue's 24 GiB limit nothing
  workers["a/0"].state = workers["a/2"].state = v1::WORKER_STATE_LOST;
  CHECK_THAT(std::string(PlanForRegistered(start, model, workers).status().message()),
             Contains("no worker of cluster.yaml has registered"));
}

TEST_CASE("a plan takes the rates of products that workers measured, of alike devices the least") {
  const v1::Model model = *scheduler::BuiltInModel("Qwen2.5-0.5B");
  const auto worker = [](double gigabytes, std::vector<int> rows) {
    WorkerRecord record = Worker(8);
    for (const int count : rows) {
      v1::ProductRate& rate = *record.registration.mutable_device()->add_products();
      rate.set_weights("bfloat16");
      rate.set_rows(count);
      rate.set_read_bytes_per_second(gigabytes * 1e9);
    }
    return record;
  };
  const auto planned = [&](const ClusterQuestion& start,
                           const std::map<std::string, WorkerRecord>& workers) {
    const auto plan = PlanForRegistered(start, model, workers);
    REQUIRE(plan.status().message() == "");
    bool measured = false;
    for (const std::string& line : scheduler::AssumptionLines(plan->assumptions()))
      measured |= line.find("products with bfloat16 by rows") != std::string::npos;
    double tokens = 0;
    for (const v1::Replica& replica : plan->replicas())
      tokens += replica.prediction().output_tokens_per_second();
    return std::pair(measured, tokens);
  };
  ClusterQuestion start = Start();
  const auto unmeasured = planned(start, {{"a/0", Worker(8)}, {"a/1", Worker(8)}});
  CHECK_FALSE(unmeasured.first);
  const auto fast = planned(start, {{"a/0", worker(900, {1, 64})}, {"a/1", worker(900, {1, 64})}});
  const auto uneven =
      planned(start, {{"a/0", worker(900, {1, 64})}, {"a/1", worker(300, {1, 64})}});
  const auto slow = planned(start, {{"a/0", worker(300, {1, 64})}, {"a/1", worker(300, {1, 64})}});
  CHECK(fast.first);
  CHECK(fast.second > 1.5 * slow.second);
  CHECK(uneven.second == Approx(slow.second));
  // One of the group was measured otherwise, or not at all: all go by the catalogue.
  const auto part = planned(start, {{"a/0", worker(300, {1, 64})}, {"a/1", Worker(8)}});
  CHECK_FALSE(part.first);
  CHECK(part.second == Approx(unmeasured.second));
  CHECK_FALSE(planned(start, {{"a/0", Worker(8)}, {"a/1", worker(300, {1, 64})}}).first);
  CHECK_FALSE(planned(start, {{"a/0", worker(300, {1})}, {"a/1", worker(300, {1, 64})}}).first);
  // What the description says was measured beats it.
  v1::DeviceGroup& group = *start.input.cluster.mutable_machines(0)->mutable_devices(0);
  *group.mutable_profile()->mutable_products() =
      worker(900, {1, 64}).registration.device().products();
  CHECK(planned(start, {{"a/0", worker(300, {1, 64})}, {"a/1", worker(300, {1, 64})}}).second ==
        Approx(fast.second));
}

TEST_CASE("a coordinator's refusal names its own flags") {
  ClusterQuestion start = Start();
  const v1::Model model = *scheduler::BuiltInModel("Llama-3-8B");
  // 16 GB of weights do not fit, eight do.
  const std::map<std::string, WorkerRecord> workers = {{"a/0", Worker(15)}};
  const std::string refusal(PlanForRegistered(start, model, workers).status().message());
  CHECK_THAT(refusal, Contains("GiB are missing") && Contains("--quantization int8"));
  CHECK_THAT(refusal, !Contains("--dtype int8") && !Contains("--utilisation"));
}

TEST_CASE("a coordinator's own plan is within the limits of `tessera plan`, and as simple") {
  ClusterQuestion start = Start();
  start.input.cluster.Clear();
  REQUIRE(ReadDocument(R"(
machines:
- {name: a, devices: [{kind: RTX4090}]}
- {name: b, devices: [{kind: RTX3090, count: 2}]}
tiers: {site: {bandwidth: 10 Gbit/s, latency: 50 us}}
)",
                       "cluster.yaml", &start.input.cluster)
              .message() == "");
  start.input.workload.Clear();
  v1::LengthSample& lengths = *start.input.workload.add_classes()->add_lengths();
  lengths.set_prompt_tokens(1155);
  lengths.set_output_tokens(211);
  const v1::Model model = *scheduler::BuiltInModel("Llama-3-8B");
  const std::map<std::string, WorkerRecord> workers = {
      {"a/0", Worker(24)}, {"b/0", Worker(24)}, {"b/1", Worker(24)}};
  const auto plan = PlanForRegistered(start, model, workers);
  REQUIRE(plan.status().message() == "");
  CHECK(plan->replicas_size() == 3);  // the most is served by pipelines
  for (const v1::Replica& replica : plan->replicas()) CHECK(replica.stages_size() == 1);
  CHECK(plan->prediction().time_per_output_token_seconds() <= 0.1);
  // As `tessera plan`: rates weighed by latency.
  const auto weighed = [](const v1::Note& note) {
    return note.limits_cost().full_tpot_seconds() == scheduler::UsualPreference().full_tpot_seconds;
  };
  CHECK(std::any_of(plan->notes().begin(), plan->notes().end(), weighed));
  // Where one card has KV for the longest request, but not in whole blocks, no replica is one card.
  start.options.context_tokens = plan->replicas(0).prediction().kv_capacity_tokens();
  start.options.block_tokens = 1;
  CHECK(PlanForRegistered(start, model, workers)->replicas_size() == 3);
  start.options.block_tokens = start.options.context_tokens - 1;
  const auto in_blocks = PlanForRegistered(start, model, workers);
  REQUIRE(in_blocks.status().message() == "");
  for (const v1::Replica& replica : in_blocks->replicas())
    CHECK(replica.prediction().kv_capacity_tokens() >= 2 * start.options.block_tokens);
}

TEST_CASE("memory is at most what the description itself gives, however much a worker registers") {
  ClusterQuestion start = Start();
  start.input.cluster.Clear();
  REQUIRE(ReadDocument(R"(
machines: [{name: a, devices: [{kind: half, count: 2}, {kind: RTX4090, memory: 6 GiB}]}]
kinds: [{name: half, memory: 8 GiB, memory_bandwidth: 40 GB/s, dense_flops_per_second: 1 TFLOPS}]
)",
                       "cluster.yaml", &start.input.cluster)
              .message() == "");
  const v1::Model model = *scheduler::BuiltInModel("Qwen2.5-0.5B");
  const auto offered = [&](int64_t gib) {
    const auto plan = PlanForRegistered(
        start, model, {{"a/0", Worker(gib)}, {"a/1", Worker(5)}, {"a/2", Worker(gib)}});
    REQUIRE(plan.status().message() == "");
    std::map<std::string, int64_t> bytes;
    for (const v1::Replica& replica : plan->replicas()) {
      const v1::PlannedWorker& worker = replica.stages(0).workers(0);
      bytes[worker.device()] = worker.available_bytes();
    }
    std::vector<std::string> told;
    for (const std::string& line : scheduler::AssumptionLines(plan->assumptions())) {
      if (line.find(" registered ") != std::string::npos) told.push_back(line);
    }
    return std::make_pair(bytes, told);
  };
  const auto [much, told] = offered(24);
  REQUIRE(much.size() == 3);
  CHECK(much.at("a/0") < int64_t{8} << 30);
  CHECK(much.at("a/2") < int64_t{6} << 30);
  CHECK(told == std::vector<std::string>{
                    "memory of a/2 = 6.0 GiB, less than its worker registered (cluster.yaml)",
                    "memory of a/0 = 8.0 GiB, less than its worker registered (cluster.yaml)"});
  const auto [little, nothing] = offered(4);
  CHECK(little.at("a/0") < int64_t{4} << 30);
  CHECK(nothing.empty());
}

TEST_CASE(
    "a model that no worker holds alone is planned over several, each with what it registered") {
  ClusterQuestion start = Start();
  start.input.cluster.Clear();
  REQUIRE(ReadDocument(R"(
machines:
- {name: a, devices: [{kind: mine}]}
- {name: b, devices: [{kind: mine}]}
- {name: c, devices: [{kind: mine}]}
kinds: [{name: mine, memory: 64 GiB, memory_bandwidth: 40 GB/s, dense_flops_per_second: 1 TFLOPS}]
tiers: {site: {bandwidth: 10 Gbit/s, latency: 50 us}}
)",
                       "cluster.yaml", &start.input.cluster)
              .message() == "");
  const v1::Model model = *scheduler::BuiltInModel("Qwen2.5-1.5B");  // 3 GiB of weights
  std::map<std::string, WorkerRecord> workers = {
      {"a/0", Worker(2)}, {"b/0", Worker(2)}, {"c/0", Worker(2)}};
  // A GiB of each for a runtime: nothing is left.
  CHECK(absl::IsResourceExhausted(PlanForRegistered(start, model, workers).status()));
  for (auto& [name, worker] : workers) worker.registration.mutable_device()->set_kind("cpu");
  const auto plan = PlanForRegistered(start, model, workers);
  REQUIRE(plan.status().message() == "");
  v1::ConfigureRequest configure;
  *configure.mutable_model() = model;
  CHECK(CheckPlanTerms(*plan, configure).message() == "");
  REQUIRE(plan->replicas_size() == 1);
  CHECK(plan->replicas(0).role() == v1::REPLICA_ROLE_BOTH);
  int used = 0;
  for (const v1::Stage& stage : plan->replicas(0).stages()) {
    for (const v1::PlannedWorker& worker : stage.workers()) {
      ++used;
      CHECK(worker.available_bytes() == static_cast<int64_t>(0.9 * 0x1p31));
      CHECK(CheckRoom(worker, int64_t{2} << 30).ok());
    }
  }
  CHECK(used >= 2);
}

TEST_CASE("while there is no plan, why not is said for as long as it holds") {
  const std::string cluster = std::string(std::getenv("TEST_TMPDIR")) + "/waits.yaml";
  std::ofstream(cluster) << "machines: [{name: a, devices: [{kind: RTX4090, count: 2}]}]\n";
  v1::ConfigureRequest configure;
  *configure.mutable_model() = *scheduler::BuiltInModel("Qwen2.5-0.5B");
  double now = 0;
  const auto planner = PlannerOfCluster(cluster, "", 30, {}, "", configure, [&now] { return now; });
  REQUIRE(planner.status().message() == "");
  const auto why = [&](const std::map<std::string, WorkerRecord>& workers) {
    return std::string((*planner)(workers).status().message());
  };
  CHECK_THAT(why({}),
             Contains("no worker has registered yet") && Contains("tessera-worker --name a/0"));
  const std::map<std::string, WorkerRecord> misnamed = {{"b/0", Worker(8)}};
  for (now = 1; now < 30; now += 10) {
    CHECK_THAT(why(misnamed),
               Contains("planning waits for a/0, a/1, for at most 30 s (--plan-wait)") &&
                   Contains("tessera-worker --name a/0"));
  }
  now = 40;
  CHECK_THAT(why(misnamed), Contains("no plan: no worker of " + cluster + " has registered"));
  CHECK(why(misnamed) == "");  // as before
  CHECK((*planner)({{"a/0", Worker(8)}}).ok());
}

TEST_CASE("who is lost after the first plan is not waited for when there is to be another") {
  const std::string cluster = std::string(std::getenv("TEST_TMPDIR")) + "/lost.yaml";
  std::ofstream(cluster) << "machines: [{name: a, devices: [{kind: RTX4090, count: 2}]}]\n";
  v1::ConfigureRequest configure;
  *configure.mutable_model() = *scheduler::BuiltInModel("Qwen2.5-0.5B");
  double now = 0;
  const auto planner =
      PlannerOfCluster(cluster, "", 30, false, "", configure, [&now] { return now; });
  REQUIRE(planner.status().message() == "");
  std::map<std::string, WorkerRecord> workers = {{"a/0", Worker(8)}, {"a/1", Worker(8)}};
  const auto both = (*planner)(workers);
  REQUIRE(both.status().message() == "");
  CHECK(both->replicas_size() == 2);
  now = 5;
  workers["a/1"].state = v1::WORKER_STATE_LOST;
  const auto left = (*planner)(workers);
  REQUIRE(left.status().message() == "");
  REQUIRE(left->replicas_size() == 1);
  CHECK(left->replicas(0).stages(0).workers(0).device() == "a/0");
  CHECK((*planner)(workers).status().message() == "");  // the same again: nothing new
}

}  // namespace tessera::coordinator
