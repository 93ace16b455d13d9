#include "coordinator/deployment/plan_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/replicate.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

class Fixed final : public PlanSource {
 public:
  explicit Fixed(std::vector<v1::DeploymentPlan> plans) : plans_(std::move(plans)) {}

  std::optional<NextPlan> Next(const PlanView&) override {
    if (plans_.empty()) return std::nullopt;
    return NextPlan{{std::exchange(plans_, {}), /*names_devices=*/true}};
  }

 private:
  std::vector<v1::DeploymentPlan> plans_;
};

class EachWorker final : public PlanSource {
 public:
  explicit EachWorker(std::vector<v1::Model> models) : models_(std::move(models)) {}

  std::optional<NextPlan> Next(const PlanView& view) override {
    if (view.in_force.names_devices) return std::nullopt;
    const std::vector<std::vector<scheduler::DeviceOffer>> devices = Deal(view.workers);
    PlanSet next;
    std::string text;
    for (size_t i = 0; i < models_.size(); ++i) {
      next.plans.push_back(scheduler::OneReplicaPerDevice(models_[i], devices[i]));
      absl::StrAppend(&text, next.plans.back().SerializeAsString());
    }
    if (!view.in_force.plans.empty() && text == given_) return std::nullopt;
    given_ = std::move(text);
    return NextPlan{std::move(next)};
  }

 private:
  // The live workers, by model.
  std::vector<std::vector<scheduler::DeviceOffer>> Deal(
      const std::map<std::string, WorkerRecord>& workers) {
    std::erase_if(model_of_, [&](const auto& entry) { return !workers.contains(entry.first); });
    std::vector<std::vector<scheduler::DeviceOffer>> devices(models_.size());
    // Those that have a model first, so that a new one is dealt by what all of them have.
    for (const bool is_new : {false, true}) {
      for (const auto& [name, worker] : workers) {
        if (worker.state == v1::WORKER_STATE_LOST || model_of_.contains(name) == is_new) continue;
        const auto fewest =
            std::ranges::min_element(devices, {}, [](const auto& d) { return d.size(); });
        const size_t model = model_of_.emplace(name, fewest - devices.begin()).first->second;
        const v1::DeviceInfo& device = worker.registration.device();
        devices[model].push_back({.name = name,
                                  .memory_bytes = device.memory_bytes(),
                                  .gpu = !device.gpu_name().empty()});
      }
    }
    for (auto& of_model : devices)
      std::ranges::sort(of_model, {},
                        [](const scheduler::DeviceOffer& offer) { return offer.name; });
    return devices;
  }

  const std::vector<v1::Model> models_;
  std::map<std::string, size_t> model_of_;  // by worker
  std::string given_;                       // the newest plans
};

class Planned final : public PlanSource {
 public:
  Planned(PlanForWorkers planner, double replan_after_seconds)
      : planner_(std::move(planner)), replan_after_seconds_(replan_after_seconds) {}

  std::optional<NextPlan> Next(const PlanView& view) override {
    if (view.in_force.has_replicas()) return WithoutBad(view);
    absl::StatusOr<v1::DeploymentPlan> plan = planner_(view.workers);
    if (plan.ok()) return NextPlan{{{*std::move(plan)}, /*names_devices=*/true}};
    // The planner logs it, once.
    if (!plan.status().message().empty()) why_none_ = std::string(plan.status().message());
    return std::nullopt;
  }

  void Refuse(const absl::Status& status) override {
    why_none_ = absl::StrCat("the plan cannot be deployed: ", std::string(status.message()));
    Logger("coordinator").error("{}", why_none_);
  }

  std::string why_none() const override { return why_none_; }

 private:
  std::optional<NextPlan> WithoutBad(const PlanView& view) {
    if (replan_after_seconds_ <= 0) return std::nullopt;
    std::vector<std::string> gone;
    for (const std::string& device : DevicesOf(view.in_force)) {
      const auto worker = view.workers.find(device);
      if (worker != view.workers.end() && worker->second.state == v1::WORKER_STATE_LOST &&
          view.now_seconds - worker->second.last_heartbeat_seconds >= replan_after_seconds_)
        gone.push_back(device);
    }
    const std::vector<std::string> slow = SlowForLong(view);
    if (gone.empty() && slow.empty()) return std::nullopt;
    auto left_out = left_out_;
    for (const std::string& device : slow) left_out[device] = IncarnationOf(device, view);
    std::map<std::string, WorkerRecord> good = view.workers;
    for (const auto& [device, incarnation] : left_out) {
      if (IncarnationOf(device, view) == incarnation) good.erase(device);
    }
    absl::StatusOr<v1::DeploymentPlan> plan = planner_(good);
    // The planner says why, and answers once for the same workers.
    if (!plan.ok()) {
      // A worker that was slow is better than none.
      if (slow.empty()) left_out_.clear();
      return std::nullopt;
    }
    left_out_ = std::move(left_out);
    if (!gone.empty()) Say(gone, "gone");
    if (!slow.empty()) Say(slow, "slow");
    return NextPlan{{{*std::move(plan)}, /*names_devices=*/true}, /*on_trial=*/true};
  }

  std::vector<std::string> SlowForLong(const PlanView& view) const {
    if (view.stragglers.size() != 1) return {};
    const Straggler& straggler = view.stragglers.front();
    const bool left_out =
        straggler.factor >= kLeftOutFactor && straggler.much_seconds >= replan_after_seconds_;
    return left_out ? straggler.workers : std::vector<std::string>();
  }

  static uint64_t IncarnationOf(const std::string& device, const PlanView& view) {
    const auto worker = view.workers.find(device);
    return worker == view.workers.end() ? 0 : worker->second.registration.incarnation();
  }

  void Say(const std::vector<std::string>& devices, const std::string& how) const {
    Logger("coordinator")
        .warn("a new plan goes without {}, {} for {} s", absl::StrJoin(devices, ", "), how,
              replan_after_seconds_);
  }

  const PlanForWorkers planner_;
  const double replan_after_seconds_;
  // Devices that were slow: no later plan has them, unless they are other processes by then.
  std::map<std::string, uint64_t> left_out_;
  std::string why_none_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PlanSource>> FixedPlans(std::vector<v1::DeploymentPlan> plans,
                                                       std::span<const v1::Model> models) {
  auto by_model = ByModel(std::move(plans), models);
  if (!by_model.ok()) return by_model.status();
  std::vector<v1::DeploymentPlan> sorted;
  for (size_t i = 0; i < models.size(); ++i) {
    if (!(*by_model)[i].has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no plan is for the model ", models[i].name(), ": give one for each"));
    }
    sorted.push_back(*std::move((*by_model)[i]));
  }
  return std::make_unique<Fixed>(std::move(sorted));
}

std::unique_ptr<PlanSource> EachWorkerAlone(std::vector<v1::Model> models) {
  return std::make_unique<EachWorker>(std::move(models));
}

std::unique_ptr<PlanSource> PlannedForWorkers(PlanForWorkers planner, double replan_after_seconds) {
  return std::make_unique<Planned>(std::move(planner), replan_after_seconds);
}

}  // namespace tessera::coordinator
