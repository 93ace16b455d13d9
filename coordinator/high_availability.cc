#include "coordinator/high_availability.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/ports.h"
#include "coordinator/spare/etcd_store.h"
#include "coordinator/spare/spare_door.h"
#include "proto/file_text.h"
#include "proto/tcp_probe.h"
#include "scheduler/plan_file.h"
#include "third_party/linux/service_manager.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;

constexpr double kLookSeconds = 0.3;       // for a leader
constexpr double kMaxPatienceSeconds = 2;  // with a member of etcd
constexpr char kHttp[] = "http", kGrpc[] = "grpc";

std::string Field(const std::string& value, const char* field) {
  const Json parsed = Json::parse(value, nullptr, /*allow_exceptions=*/false);
  const auto found = parsed.find(field);  // of what is no object: nothing
  return found != parsed.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool IsGone(const std::string& leader) {
  const std::string address = Field(leader, kGrpc);
  return !address.empty() && absl::IsNotFound(Reach(address, kLookSeconds));
}

// What the flags say of plans, with the files that they name: the plans of others are not these.
absl::StatusOr<std::string> PlanFlags(const CoordinatorOptions& options) {
  const char* split = !options.split.has_value() ? "" : *options.split ? "split" : "no-split";
  std::string flags = absl::StrCat(options.cluster_file, "\n", options.workload_file, "\n",
                                   options.prefer, "\n", split, "\n");
  std::vector<std::string> files = options.plan_files;
  for (const std::string& file : {options.cluster_file, options.workload_file}) {
    if (!file.empty()) files.push_back(file);
  }
  for (const std::string& file : files) {
    const absl::StatusOr<std::string> text = ReadFileText(file, scheduler::kMaxPlanBytes);
    if (!text.ok()) return text.status();
    absl::StrAppend(&flags, std::hash<std::string>()(*text), "\n");
  }
  return flags;
}

class InTurn final : public PlanSource {
 public:
  InTurn(std::unique_ptr<PlanSource> first, std::unique_ptr<PlanSource> next)
      : first_(std::move(first)), next_(std::move(next)), newest_(next_.get()) {}

  std::optional<NextPlan> Next(const PlanView& view) override {
    newest_ = first_.get();
    std::optional<NextPlan> kept = first_->Next(view);
    if (kept.has_value()) return kept;
    newest_ = next_.get();
    return next_->Next(view);
  }
  void Refuse(const absl::Status& why) override { newest_->Refuse(why); }
  void Ended(absl::StatusOr<v1::ApplyPlanReply> reply) override {
    newest_->Ended(std::move(reply));
  }
  std::string why_none() const override { return next_->why_none(); }

 private:
  const std::unique_ptr<PlanSource> first_, next_;
  PlanSource* newest_;  // that had a plan
};

}  // namespace

absl::StatusOr<std::unique_ptr<HighAvailability>> HighAvailability::Lead(
    const CoordinatorOptions& options, CertificateWatch* certificates,
    std::function<double()> now_seconds, const std::function<bool()>& stopped) {
  if (options.ha.empty()) return std::unique_ptr<HighAvailability>();
  auto place = ParseEtcdUrl(options.ha);
  if (!place.ok()) return place.status();
  auto flags = PlanFlags(options);
  if (!flags.ok()) return flags.status();
  const char* scheme = options.tls.certificate.empty() ? "http://" : "https://";
  LeadershipOptions leadership;
  leadership.prefix = absl::StrCat("/tessera/", place->cluster, "/");
  leadership.election.value =
      Json{{kHttp, absl::StrCat(scheme, ReachableAt(options.host, options.port))},
           {kGrpc, ReachableAt(options.host, options.grpc_port)}}
          .dump();
  leadership.election.lease_seconds = options.ha_lease_seconds;
  leadership.election.is_gone = IsGone;
  leadership.now_seconds = std::move(now_seconds);
  // Two may fail within the third of a lease that is left when it is renewed.
  const double patience_seconds = std::min(options.ha_lease_seconds / 6, kMaxPatienceSeconds);
  auto store = MakeEtcdStore(*place, patience_seconds);
  if (!store.ok()) return store.status();
  std::unique_ptr<HighAvailability> joined(
      new HighAvailability(options, *std::move(flags), std::move(leadership), *std::move(store)));
  if (absl::Status s = joined->Await(certificates, stopped); !s.ok()) return s;
  return joined;
}

std::string HighAvailability::leader_url() const { return Field(leadership_.leader(), kHttp); }

absl::Status HighAvailability::Await(CertificateWatch* certificates,
                                     const std::function<bool()>& stopped) {
  HttpServerOptions http;
  http.host = options_.host;
  http.port = options_.port;
  http.certificates = certificates;
  http.io_threads = 1;
  auto door = OpenSpareDoor(http, [this] { return leader_url(); });
  if (!door.ok()) return door.status();
  (void)NotifyServiceManager("READY=1\nSTATUS=spare");
  std::string said = "?";
  while (leadership_.standing() != Leadership::Standing::kLeads) {
    if (stopped()) return absl::CancelledError("stopped as a spare");
    if (deposed())
      return absl::UnavailableError(
          "another coordinator leads: start this one again, as its spare");
    std::string leader = leader_url();
    if (!leader.empty() && leader != said)
      Logger("spare").info("this coordinator is a spare: {} leads", leader);
    if (!leader.empty()) said = std::move(leader);
    usleep(20'000);
  }
  Logger("spare").info("this coordinator leads, in term {}", term());
  return absl::OkStatus();
}

std::unique_ptr<PlanSource> HighAvailability::KeptFirst(std::unique_ptr<PlanSource> next,
                                                        std::span<const v1::Model> models) const {
  KeptCluster kept = this->kept();
  if (kept.plans.empty()) return next;
  if (kept.flags != flags_) {
    Logger("spare").warn(
        "the flags of this coordinator say other things of plans than those of the leader before: "
        "its plan is left");
    return next;
  }
  auto first = FixedPlans(std::move(kept.plans), models);
  if (!first.ok()) {
    Logger("spare").warn("the plan of the leader before is left: {}",
                         std::string(first.status().message()));
    return next;
  }
  // Those of files have been in force before.
  if (!options_.plan_files.empty()) return *std::move(first);
  return std::make_unique<InTurn>(*std::move(first), std::move(next));
}

}  // namespace tessera::coordinator
