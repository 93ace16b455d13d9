#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/layers/layer_sizes.h"
#include "proto/layers/layers.h"
#include "scheduler/plan_check/parts.h"
#include "scheduler/plan_check/plan_check.h"

namespace tessera::scheduler {
namespace {

constexpr double kGib = 0x1p30;
constexpr double kRounding = 1 + 1e-6;
constexpr int kMaxDrafts = 6;  // of a sequence in one step

struct Device {
  std::string kind;
  double memory_bytes = 0;
  double bytes_per_second = 0;
  double flops_per_second = 0;
  double usd_per_hour = 0;  // of its kind
};

struct Place {
  std::string site, rack;
  double uplink = 0;       // bytes per second, 0: none of its own
  double weight_read = 0;  // bytes per second, 0: the description does not say
};

std::string Folded(const std::string& name) {
  std::string folded;
  for (const unsigned char c : name) {
    if (std::isalnum(c) != 0) folded += static_cast<char>(std::tolower(c));
  }
  return folded;
}

// Every device is listed below, however few words described them.
absl::Status CheckSize(const v1::Cluster& cluster) {
  constexpr double kMaxDevices = 1e6;
  double devices = 0;
  for (const v1::Machine& machine : cluster.machines()) {
    double inside = 0;
    for (const v1::DeviceGroup& group : machine.devices()) inside += std::max(1, group.count());
    devices += inside * std::max(1, machine.available());
  }
  if (devices <= kMaxDevices) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "the cluster has %.0f devices; at most %.0f are looked at", devices, kMaxDevices));
}

class ClusterCheck {
 public:
  ClusterCheck(const v1::DeploymentPlan& plan, const v1::Cluster& cluster,
               const v1::DeviceCatalogue& catalogue)
      : plan_(plan), cluster_(cluster), catalogue_(catalogue) {
    for (const v1::Machine& machine : cluster.machines()) AddMachine(machine);
  }

  absl::Status Run() {
    for (const v1::Replica& replica : plan_.replicas()) {
      replicas_[replica.name()] = &replica;
      if (absl::Status s = CheckDevices(replica); !s.ok()) return s;
      if (absl::Status s = CheckPeaks(replica); !s.ok()) return s;
    }
    if (absl::Status s = CheckLatencies(); !s.ok()) return s;
    if (absl::Status s = CheckLoading(); !s.ok()) return s;
    if (absl::Status s = CheckPrices(plan_, cluster_, kind_prices_); !s.ok()) return s;
    for (const v1::RoutingShare& share : plan_.routing()) {
      if (absl::Status s = AddTraffic(share); !s.ok()) return s;
    }
    if (absl::Status s = CheckLinks(); !s.ok()) return s;
    return CheckStatedLoads();
  }

  absl::Status RunOfWhatIsThere() const {
    for (const v1::Replica& replica : plan_.replicas()) {
      if (!IsThere(replica)) continue;
      if (absl::Status s = CheckDevices(replica); !s.ok()) return s;
      if (absl::Status s = CheckPeaks(replica); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

 private:
  // --- What the description says ---

  void AddMachine(const v1::Machine& machine) {
    for (int copy = 1; copy <= std::max(1, machine.available()); ++copy) {
      const std::string name =
          machine.available() > 1 ? absl::StrCat(machine.name(), ".", copy) : machine.name();
      places_[name] = {machine.site(), machine.rack(),
                       machine.uplink().bandwidth_bytes_per_second(),
                       machine.weight_read_bytes_per_second()};
      int index = 0;
      for (const v1::DeviceGroup& group : machine.devices()) {
        const Device device = DeviceOf(group);
        kind_prices_[group.kind()] = device.usd_per_hour;
        for (int i = 0; i < std::max(1, group.count()); ++i)
          devices_[absl::StrCat(name, "/", index++)] = device;
      }
    }
  }

  Device DeviceOf(const v1::DeviceGroup& group) const {
    v1::DeviceKind kind;
    for (const v1::DeviceKind& known : catalogue_.kinds()) {
      bool named = Folded(known.name()) == Folded(group.kind());
      for (const std::string& alias : known.aliases())
        named = named || Folded(alias) == Folded(group.kind());
      if (named) kind = known;
    }
    for (const v1::DeviceKind& own : cluster_.kinds()) {
      if (own.name() == group.kind()) kind.MergeFrom(own);
    }
    const double measured = group.profile().memory_read_bytes_per_second();
    Device device = {
        kind.name(),
        static_cast<double>(group.memory_bytes() > 0 ? group.memory_bytes() : kind.memory_bytes()),
        measured > 0 ? measured : kind.memory_bandwidth_bytes_per_second(),
        kind.dense_flops_per_second(), kind.price_usd_per_hour()};
    for (const v1::ProductRate& product : group.profile().products()) {
      const double read = product.read_bytes_per_second();
      device.bytes_per_second = std::max(device.bytes_per_second, read);
      device.flops_per_second = std::max(device.flops_per_second,
                                         2 * product.rows() * read / LeastBytes(product.weights()));
    }
    return device;
  }

  // Bytes of a weight, scales aside.
  static double LeastBytes(const std::string& weights) {
    if (weights == "int4" || weights == "mxfp4") return 0.5;
    return weights == "int8" || weights == "fp8" ? 1 : 2;
  }

  static std::string MachineOf(const v1::PlannedWorker& worker) {
    return worker.device().substr(0, worker.device().rfind('/'));
  }
  static std::string MachineOf(const v1::Stage& stage) { return MachineOf(stage.workers(0)); }

  // Bytes per second from one machine to another without what they share with others; nothing where
  // nobody joined them.
  std::optional<double> Bandwidth(const std::string& from, const std::string& to) const {
    const Place &a = places_.at(from), &b = places_.at(to);
    std::optional<double> by_pair, by_site;
    for (const v1::PairLink& pair : cluster_.links()) {
      for (const bool back : {false, true}) {
        if (back && pair.one_way()) continue;
        const std::string& start = back ? pair.to() : pair.from();
        const std::string& end = back ? pair.from() : pair.to();
        const bool start_fits = start == from || start == a.site;
        const bool end_fits = end == to || end == b.site;
        if (!start_fits || !end_fits) continue;
        const double rate = pair.link().bandwidth_bytes_per_second();
        if (start == from && end == to) {
          if (!by_pair) by_pair = rate;
        } else if (start == from || end == to || a.site != b.site) {
          by_site = rate;
        }
      }
    }
    if (by_pair) return by_pair;
    if (by_site) return by_site;
    const v1::Tiers& tiers = cluster_.tiers();
    const v1::Link* tier = nullptr;
    if (a.site != b.site) {
      if (tiers.has_region()) tier = &tiers.region();
    } else if (a.rack == b.rack && tiers.has_rack() && (!a.rack.empty() || !tiers.has_site())) {
      tier = &tiers.rack();
    } else if (tiers.has_site()) {
      tier = &tiers.site();
    }
    if (tier == nullptr) return std::nullopt;
    return tier->bandwidth_bytes_per_second();
  }

  double SiteUplink(const std::string& name) const {
    for (const v1::Site& site : cluster_.sites()) {
      if (site.name() == name) return site.uplink().bandwidth_bytes_per_second();
    }
    return 0;
  }

  // --- Devices ---

  bool IsThere(const v1::Replica& replica) const {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) {
        if (!devices_.contains(worker.device())) return false;
      }
    }
    return true;
  }

  absl::Status CheckDevices(const v1::Replica& replica) const {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) {
        const auto found = devices_.find(worker.device());
        if (found == devices_.end()) {
          return absl::InvalidArgumentError(absl::StrCat("replica ", replica.name(), ": device ",
                                                         worker.device(),
                                                         " is not in the cluster description"));
        }
        if (absl::Status s = CheckDevice(replica.name(), worker, found->second); !s.ok()) return s;
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckDevice(const std::string& replica, const v1::PlannedWorker& worker,
                           const Device& device) const {
    if (!worker.kind().empty() && Folded(worker.kind()) != Folded(device.kind)) {
      return absl::InvalidArgumentError(absl::StrCat("replica ", replica, ": device ",
                                                     worker.device(), " is a ", device.kind,
                                                     ", the plan says ", worker.kind()));
    }
    const double part =
        plan_.basis().memory_utilisation() > 0 ? plan_.basis().memory_utilisation() : 1.0;
    const double offers = device.memory_bytes * part - plan_.basis().runtime_reserve_bytes();
    const HeldByWorker held = HeldBy(plan_, worker.share());
    const double needs = std::max(held.weight_bytes, static_cast<double>(worker.weight_bytes())) +
                         static_cast<double>(worker.kv_bytes() + worker.activation_bytes());
    if (needs > offers + 1) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "replica %s: device %s (%s) needs %.2f GiB and offers %.2f of its %.2f GiB: %.2f GiB are "
          "missing",
          replica, worker.device(), device.kind, needs / kGib, offers / kGib,
          device.memory_bytes / kGib, (needs - offers) / kGib));
    }
    if (static_cast<double>(worker.available_bytes()) > offers + 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("replica %s: device %s (%s) offers %.2f GiB, the plan says %.2f", replica,
                          worker.device(), device.kind, offers / kGib,
                          static_cast<double>(worker.available_bytes()) / kGib));
    }
    return absl::OkStatus();
  }

  // Whatever the cost model: a step reads the weights it uses once and computes with them for each
  // token.
  absl::Status CheckPeaks(const v1::Replica& replica) const {
    const v1::PlanBasis& basis = plan_.basis();
    const bool decodes = replica.role() != v1::REPLICA_ROLE_PREFILL;
    const bool prefills = replica.role() != v1::REPLICA_ROLE_DECODE;
    const double tokens = (prefills ? basis.uncached_prompt_tokens() : 0) +
                          (decodes ? std::max(0.0, basis.output_tokens() - 1) : 0);
    const double rate = replica.prediction().requests_per_second();
    double least_ttft = 0;
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) {
        const Device& device = devices_.at(worker.device());
        const HeldByWorker held = HeldBy(plan_, worker.share());
        // The head computes for sampled rows alone; leave it out.
        const double head = worker.share().holds_head() ? HeadParameters(worker.share()) : 0;
        const double token_flops = 2 * (held.parameters_per_token - head);
        // Chunks of a prompt overlap in the stages of a pipeline, but each stage computes them all.
        least_ttft = std::max(
            least_ttft, basis.uncached_prompt_tokens() * token_flops / device.flops_per_second);
        const double flops = rate * tokens * token_flops;
        if (flops <= device.flops_per_second * kRounding) continue;
        return absl::InvalidArgumentError(absl::StrFormat(
            "replica %s: %.3f requests/s ask %.1f TFLOP/s of device %s (%s), whose peak is %.1f",
            replica.name(), rate, flops / 1e12, worker.device(), device.kind,
            device.flops_per_second / 1e12));
      }
    }
    const double ttft = replica.prediction().time_to_first_token_seconds();
    if (prefills && ttft > 0 && ttft * kRounding < least_ttft) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "replica %s: a TTFT of %.2f ms is predicted, but computing a mean prompt at the peak of "
          "its devices takes %.2f ms",
          replica.name(), ttft * 1e3, least_ttft * 1e3));
    }
    const double tpot = replica.prediction().time_per_output_token_seconds();
    const double least_tpot = LeastOf(replica).per_output_token;
    if (!decodes || tpot <= 0 || tpot * kRounding >= least_tpot) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "replica %s: a TPOT of %.2f ms is predicted, but reading its weights at full memory "
        "bandwidth takes %.2f ms",
        replica.name(), tpot * 1e3, least_tpot * 1e3));
  }

  LeastSeconds LeastOf(const v1::Replica& replica) const {
    LeastSeconds least;
    for (const v1::Stage& stage : replica.stages()) {
      double computes = 0, reads = 0;  // of the slowest worker
      for (const v1::PlannedWorker& worker : stage.workers()) {
        const Device& device = devices_.at(worker.device());
        const HeldByWorker held = HeldBy(plan_, worker.share());
        const double head = worker.share().holds_head() ? HeadParameters(worker.share()) : 0;
        computes =
            std::max(computes, 2 * (held.parameters_per_token - head) / device.flops_per_second);
        reads = std::max(reads, held.bytes_read_per_token / device.bytes_per_second);
      }
      least.per_prompt_token += computes;
      least.per_output_token += reads;
    }
    least.per_output_token /= MostTokensOfStep();
    return least;
  }

  // A sequence gets so many tokens of reading the weights once, where all drafts are tried that
  // the plan counts on.
  double MostTokensOfStep() const {
    const v1::DraftTerms& drafts = plan_.assumptions().planning().drafts();
    const double stands = std::isfinite(drafts.acceptance()) ? drafts.acceptance() : 0;
    double tokens = 1, all_stand = 1;
    for (int i = 0; i < std::min(drafts.draft_tokens(), kMaxDrafts); ++i)
      tokens += all_stand *= std::clamp(stands, 0.0, 1.0);
    return tokens;
  }

  absl::Status CheckLatencies() const {
    std::map<std::string, LeastSeconds> least;
    for (const v1::Replica& replica : plan_.replicas()) least[replica.name()] = LeastOf(replica);
    return CheckAttainment(plan_, least);
  }

  // Weights are not there before the disks that the description names have been read.
  absl::Status CheckLoading() const {
    std::map<std::string, double> all;  // bytes by machine
    for (const v1::Replica& replica : plan_.replicas()) {
      std::map<std::string, double> alone;
      for (const v1::Stage& stage : replica.stages()) {
        for (const v1::PlannedWorker& worker : stage.workers()) {
          const double bytes = HeldBy(plan_, worker.share()).weight_bytes;
          alone[MachineOf(worker)] += bytes;
          all[MachineOf(worker)] += bytes;
        }
      }
      absl::Status s =
          CheckRead(absl::StrCat("replica ", replica.name()), replica.load_seconds(), alone);
      if (!s.ok()) return s;
    }
    return CheckRead("move", plan_.move().load_seconds(), all);
  }

  absl::Status CheckRead(const std::string& what, double seconds,
                         const std::map<std::string, double>& bytes_of) const {
    constexpr double kWritten = 1 + 1e-4;
    for (const auto& [machine, bytes] : bytes_of) {
      const double read = places_.at(machine).weight_read;
      if (seconds == 0 || read <= 0 || seconds * read * kWritten >= bytes) continue;
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: load_seconds is %g, but machine %s reads %.2f GiB of weights in %g s", what, seconds,
          machine, bytes / kGib, bytes / read));
    }
    return absl::OkStatus();
  }

  double HeadParameters(const v1::WorkerShare& share) const {
    return VocabularyParameters(plan_.model(),
                                share.vocabulary_rows().end() - share.vocabulary_rows().begin());
  }

  // --- Links ---

  absl::Status Carry(const std::string& what, const std::string& from, const std::string& to,
                     double bytes_per_second) {
    if (from == to) return absl::OkStatus();
    if (!Bandwidth(from, to)) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": machine ", to,
                                                     " cannot be reached from ", from,
                                                     ": the description joins them by no link"));
    }
    if (bytes_per_second > 0) traffic_[{from, to}] += bytes_per_second;
    return absl::OkStatus();
  }

  absl::Status AddHops(const v1::Replica& replica, double tokens_per_second) {
    const double bytes = tokens_per_second * plan_.model().hidden() * WireElementBytes(plan_);
    for (int j = 0; j < replica.stages_size(); ++j) {
      const v1::Stage& stage = replica.stages(j);
      const std::string what = absl::StrCat("replica ", replica.name(), ", stage ", j);
      for (const v1::PlannedWorker& worker : stage.workers()) {
        // Ranks of a stage must reach each other; how much they exchange is up to the collective.
        if (absl::Status s = Carry(what, MachineOf(stage), MachineOf(worker), 0); !s.ok()) return s;
      }
      if (j + 1 == replica.stages_size()) break;
      const std::string next = MachineOf(replica.stages(j + 1));
      if (absl::Status s = Carry(what, MachineOf(stage), next, bytes); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  absl::Status AddTraffic(const v1::RoutingShare& share) {
    const v1::Replica& from = *replicas_.at(share.prefill_replica());
    const v1::Replica& to = *replicas_.at(share.decode_replica());
    const v1::PlanBasis& basis = plan_.basis();
    const double rate = share.share() * plan_.prediction().requests_per_second();
    if (absl::Status s = AddHops(from, rate * basis.uncached_prompt_tokens()); !s.ok()) return s;
    const double decoded = std::max(0.0, basis.output_tokens() - 1);
    if (absl::Status s = AddHops(to, rate * decoded); !s.ok()) return s;
    if (&from == &to) return absl::OkStatus();
    // Groups of 64 elements carry a scale and a zero of 16 bits each.
    double coded_bytes = 0;  // of an element
    if (share.kv_codec() == "int8") coded_bytes = (64 * 8 + 32) / (64.0 * 8);
    if (share.kv_codec() == "int4") coded_bytes = (64 * 4 + 32) / (64.0 * 8);
    const KvElement element = KvElementOf(plan_);
    const v1::Model& model = plan_.model();
    for (int64_t layer = 0; layer < LayerCount(model); ++layer) {
      const LayerShape shape = ShapeOf(model, KindOf(model, layer));
      const LayerPart whole = WholeLayer(shape);
      const double token_bytes =
          coded_bytes > 0 ? static_cast<double>(KvElementsPerToken(shape, whole)) * coded_bytes
                          : static_cast<double>(KvBytesPerToken(shape, whole, element));
      const double layer_bytes = rate * basis.prompt_tokens() * token_bytes;
      absl::Status s = Carry(absl::StrCat("KV from ", from.name(), " to ", to.name()),
                             HolderOf(from, layer), HolderOf(to, layer), layer_bytes);
      if (!s.ok()) return s;
    }
    return absl::OkStatus();
  }

  static std::string HolderOf(const v1::Replica& replica, int64_t layer) {
    for (const v1::Stage& stage : replica.stages()) {
      if (layer < stage.workers(0).share().layers().end()) return MachineOf(stage);
    }
    return MachineOf(replica.stages(replica.stages_size() - 1));
  }

  static absl::Status TooMuch(const std::string& link, double bytes, double capacity) {
    if (bytes <= capacity * kRounding) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s would carry %.3f Gbit/s, it has %.3f Gbit/s", link, bytes * 8e-9, capacity * 8e-9));
  }

  // What crosses the border of a set of machines, the busier direction.
  template <typename Inside>
  double Crossing(const Inside& inside) const {
    double out = 0, in = 0;
    for (const auto& [ends, bytes] : traffic_) {
      if (inside(ends.first) == inside(ends.second)) continue;
      (inside(ends.first) ? out : in) += bytes;
    }
    return std::max(out, in);
  }

  absl::Status CheckLinks() {
    for (const auto& [ends, bytes] : traffic_) {
      absl::Status s = TooMuch(absl::StrCat("the link from ", ends.first, " to ", ends.second),
                               bytes, *Bandwidth(ends.first, ends.second));
      if (!s.ok()) return s;
      loads_[ends] = bytes;
    }
    for (const auto& [name, place] : places_) {
      if (place.uplink <= 0) continue;
      const double bytes =
          Crossing([&name = name](const std::string& machine) { return machine == name; });
      absl::Status s = TooMuch(absl::StrCat("the uplink of machine ", name), bytes, place.uplink);
      if (!s.ok()) return s;
      if (bytes > 0) loads_[{name, ""}] = bytes;
    }
    for (const v1::Site& site : cluster_.sites()) {
      const double bytes = Crossing(
          [&](const std::string& machine) { return places_.at(machine).site == site.name(); });
      absl::Status s =
          TooMuch(absl::StrCat("the uplink of site ", site.name()), bytes, SiteUplink(site.name()));
      if (!s.ok()) return s;
      if (bytes > 0) loads_[{site.name(), ""}] = bytes;
    }
    return absl::OkStatus();
  }

  // Bytes per second that the description gives a link of the plan, the uplinks on its way counted;
  // nothing where it has no such link.
  std::optional<double> CapacityOf(const v1::LinkLoad& load) const {
    const auto from = places_.find(load.from()), to = places_.find(load.to());
    if (load.to().empty()) {
      const double own = from == places_.end() ? 0 : from->second.uplink;
      const double uplink = own > 0 ? own : SiteUplink(load.from());
      return uplink > 0 ? std::optional(uplink) : std::nullopt;
    }
    if (from == places_.end() || to == places_.end()) return std::nullopt;
    std::optional<double> capacity = Bandwidth(load.from(), load.to());
    if (!capacity) return std::nullopt;
    const Place &a = from->second, &b = to->second;
    const bool leaves_site = a.site != b.site;
    for (const double uplink : {a.uplink, b.uplink, leaves_site ? SiteUplink(a.site) : 0,
                                leaves_site ? SiteUplink(b.site) : 0}) {
      if (uplink > 0) capacity = std::min(*capacity, uplink);
    }
    return capacity;
  }

  absl::Status CheckCapacity(const std::string& name, const v1::LinkLoad& load) const {
    const std::optional<double> capacity = CapacityOf(load);
    if (!capacity) {
      return absl::InvalidArgumentError(
          absl::StrCat("the plan speaks of ", name, ", which the description does not have"));
    }
    const double stated = load.capacity_bytes_per_second();
    if (stated <= *capacity * kRounding && *capacity <= stated * kRounding) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is said to have %.6f Gbit/s; the description gives it %.6f", name,
                        stated * 8e-9, *capacity * 8e-9));
  }

  absl::Status CheckStatedLoads() const {
    if (!plan_.has_basis()) return absl::OkStatus();
    auto unstated = loads_;
    for (const v1::LinkLoad& load : plan_.links()) {
      const std::string name = load.to().empty()
                                   ? absl::StrCat("the uplink of ", load.from())
                                   : absl::StrCat("the link from ", load.from(), " to ", load.to());
      const auto found = unstated.find({load.from(), load.to()});
      const double carries = found == unstated.end() ? 0 : found->second;
      if (std::abs(carries - load.bytes_per_second()) > 1e-3 * (carries + 1)) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s is said to carry %.6f Gbit/s; routing and layers make it %.6f",
                            name, load.bytes_per_second() * 8e-9, carries * 8e-9));
      }
      if (absl::Status s = CheckCapacity(name, load); !s.ok()) return s;
      if (found != unstated.end()) unstated.erase(found);
    }
    if (unstated.empty()) return absl::OkStatus();
    const auto& [from, to] = unstated.begin()->first;
    return absl::InvalidArgumentError(
        absl::StrCat("the plan does not say what ",
                     to.empty() ? absl::StrCat("the uplink of ", from)
                                : absl::StrCat("the link from ", from, " to ", to),
                     " carries"));
  }

  const v1::DeploymentPlan& plan_;
  const v1::Cluster& cluster_;
  const v1::DeviceCatalogue& catalogue_;
  std::map<std::string, Place> places_;
  std::map<std::string, Device> devices_;
  std::map<std::string, double> kind_prices_;
  std::map<std::string, const v1::Replica*> replicas_;
  using Ends = std::pair<std::string, std::string>;
  std::map<Ends, double> traffic_;  // between machines, bytes per second
  std::map<Ends, double> loads_;    // the same and uplinks: {name, ""}
};

}  // namespace

absl::Status CheckPlanOn(const v1::DeploymentPlan& plan, const v1::Cluster& cluster,
                         const v1::DeviceCatalogue& catalogue) {
  if (absl::Status s = CheckPlan(plan); !s.ok()) return s;
  if (absl::Status s = CheckSize(cluster); !s.ok()) return s;
  return ClusterCheck(plan, cluster, catalogue).Run();
}

absl::Status CheckRunningPlan(const v1::DeploymentPlan& plan, const v1::Cluster& cluster,
                              const v1::DeviceCatalogue& catalogue) {
  if (absl::Status s = CheckPlan(plan); !s.ok()) return s;
  if (absl::Status s = CheckSize(cluster); !s.ok()) return s;
  return ClusterCheck(plan, cluster, catalogue).RunOfWhatIsThere();
}

}  // namespace tessera::scheduler
