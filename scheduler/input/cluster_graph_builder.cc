// Reads a description into a ClusterGraph.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <tuple>

#include "scheduler/input/catalogue.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/input/described_device.h"
#include "scheduler/input/device_joints.h"
#include "scheduler/input/machine_groups.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

// Whatever a file says: the link between any two unlike places is kept, a million of them at most.
constexpr int64_t kMaxMachines = 20000;
constexpr size_t kMaxPlaces = 1000;
constexpr int kMaxDevicesPerMachine = 1000;
constexpr char kDigits[] = "0123456789";

// What a tier's latency usually is: cards over PCIe, one switch, a few switches, another region.
struct Tier {
  const char* name;
  double latency_seconds;
};
constexpr Tier kMachineTier = {"machine", 10e-6};
constexpr Tier kRackTier = {"rack", 20e-6};
constexpr Tier kSiteTier = {"site", 50e-6};
constexpr Tier kRegionTier = {"region", 30e-3};

LinkSpec ToSpec(const v1::Link& link) {
  LinkSpec spec;
  spec.bytes_per_second = link.bandwidth_bytes_per_second();
  spec.latency_seconds = link.latency_seconds();
  if (link.incast_senders() > 0) spec.incast_threshold = link.incast_senders();
  spec.incast_seconds_per_byte = link.incast_seconds_per_byte();
  return spec;
}

// Without what separates names in plans and in changes to clusters.
std::string PlainName(std::string name) {
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return c == '/' || c == ';' || c <= ' ' || c == 0x7f; }, '-');
  return name;
}

// Four digits name a card ("4090"), fewer only behind a letter ("A10"): "16" may be its memory.
bool TellsKind(const std::string& part) {
  const size_t from = part.find_first_of(kDigits), end = part.find_first_not_of(kDigits, from);
  if (from == std::string::npos) return false;
  return std::min(end, part.size()) - from >= 4 ||
         (from > 0 && std::isalpha(static_cast<unsigned char>(part[from - 1])) != 0);
}

// The kinds whose names hold this one ("A100-80" for "A100"), else its first number, a short one
// with the letters before it, else its last word; all, where no name does.
std::string KindsLike(const v1::DeviceCatalogue& catalogue, const std::string& given) {
  const std::string name = given.substr(0, given.find_last_not_of(' ') + 1);
  const size_t from = std::min(name.find_first_of(kDigits), name.size());
  const size_t end = std::min(name.find_first_not_of(kDigits, from), name.size());
  const size_t begin = end - from < 4 ? name.rfind(' ', from) + 1 : from;
  std::string like;
  for (const std::string& part :
       {name, name.substr(begin, end - begin), name.substr(name.rfind(' ') + 1), std::string()}) {
    for (const v1::DeviceKind& kind : catalogue.kinds()) {
      if ((part.empty() || TellsKind(part)) && kind.name().find(part) != std::string::npos)
        like += StrCat(like.empty() ? "" : ", ", kind.name());
    }
    if (!like.empty()) break;
  }
  return like;
}

void Narrow(LinkSpec* link, const LinkSpec& by) {
  link->bytes_per_second = std::min(link->bytes_per_second, by.bytes_per_second);
  link->latency_seconds = std::max(link->latency_seconds, by.latency_seconds);
  link->incast_threshold = std::min(link->incast_threshold, by.incast_threshold);
  link->incast_seconds_per_byte =
      std::max(link->incast_seconds_per_byte, by.incast_seconds_per_byte);
}

}  // namespace

class ClusterGraphBuilder {
 public:
  ClusterGraphBuilder(const v1::Cluster& cluster, const v1::DeviceCatalogue& catalogue,
                      std::string_view file)
      : cluster_(cluster), catalogue_(catalogue), file_(file) {}

  absl::StatusOr<ClusterGraph> Build() {
    if (cluster_.machines().empty()) return Error("machines", "the cluster has no machine");
    if (cluster_.budget_usd_per_hour() < 0) return Error("budget", "must not be negative");
    std::set<std::string> kinds;
    for (int i = 0; i < cluster_.kinds_size(); ++i) {
      const std::string& name = cluster_.kinds(i).name();
      if (name.empty()) return Error(StrCat("kinds[", i, "].name"), "is missing");
      if (!kinds.insert(name).second)
        return Error(StrCat("kinds[", i, "].name"), StrCat("two kinds are named ", name));
    }
    for (int i = 0; i < cluster_.sites_size(); ++i) {
      const v1::Site& site = cluster_.sites(i);
      if (!site_uplinks_.emplace(site.name(), &site.uplink()).second)
        return Error(StrCat("sites[", i, "].name"), StrCat("two sites are named ", site.name()));
    }
    for (int i = 0; i < cluster_.machines_size(); ++i) {
      if (absl::Status s = AddMachines(cluster_.machines(i), StrCat("machines[", i, "]")); !s.ok())
        return s;
    }
    for (const auto& [site, uplink] : site_uplinks_) graph_.site_uplinks_[site] = ToSpec(*uplink);
    if (absl::Status s = Connect(); !s.ok()) return s;
    graph_.budget_ = cluster_.budget_usd_per_hour();
    return std::move(graph_);
  }

 private:
  absl::Status Error(std::string_view key, std::string_view reason) const {
    return absl::InvalidArgumentError(StrCat(file_, ": ", key, ": ", reason));
  }

  absl::Status CheckLink(const v1::Link& link, std::string_view key) const {
    if (!(link.bandwidth_bytes_per_second() > 0))
      return Error(StrCat(key, ".bandwidth"), "must be above 0");
    if (link.incast_senders() < 0 || !(link.incast_seconds_per_byte() >= 0))
      return Error(StrCat(key, ".incast_senders"), "must not be negative, its seconds neither");
    if ((link.incast_senders() > 0) == (link.incast_seconds_per_byte() > 0))
      return absl::OkStatus();
    return Error(StrCat(key, ".incast_senders"),
                 "needs incast_seconds_per_byte, the cost of each sender beyond incast_senders; "
                 "give both or neither");
  }

  absl::StatusOr<v1::DeviceKind> KindNamed(const std::string& name, const std::string& key) const {
    const std::optional<v1::DeviceKind> described = DescribedKind(cluster_, catalogue_, name);
    if (!described) {
      return Error(key, StrCat("\"", name, "\" is no known device (", KindsLike(catalogue_, name),
                               "); name one of these, or describe it under kinds: `tessera plan "
                               "init` writes what a machine has, CPUs too"));
    }
    const v1::DeviceKind& kind = *described;
    if (kind.prefill_efficiency() > 1 || kind.decode_efficiency() > 1) {
      return Error(key, StrCat("kind ", name,
                               ": prefill_efficiency and decode_efficiency are parts of the peaks: "
                               "at most 1"));
    }
    if (kind.memory_bytes() <= 0 || kind.memory_bandwidth_bytes_per_second() <= 0 ||
        kind.dense_flops_per_second() <= 0) {
      return Error(key,
                   StrCat("kind ", name,
                          " needs memory, memory_bandwidth and dense_flops_per_second above 0"));
    }
    return kind;
  }

  // A link of the description; the tier's latency where it has none of its own.
  LinkSpec SpecOf(const v1::Link& link, const Tier& tier) {
    LinkSpec spec = ToSpec(link);
    if (link.has_latency_seconds()) return spec;
    spec.latency_seconds = graph_.default_latencies_[tier.name] = tier.latency_seconds;
    return spec;
  }

  const DeviceSpec* Intern(const DeviceSpec& spec) {
    for (const auto& known : graph_.specs_) {
      if (known->kind == spec.kind && known->memory_bytes == spec.memory_bytes &&
          known->memory_bytes_per_second == spec.memory_bytes_per_second &&
          known->flops_per_second == spec.flops_per_second &&
          known->compute_efficiency == spec.compute_efficiency &&
          known->memory_efficiency == spec.memory_efficiency &&
          known->layer_overhead_seconds == spec.layer_overhead_seconds &&
          known->kv_codec_bytes_per_second == spec.kv_codec_bytes_per_second &&
          known->step_overhead_seconds == spec.step_overhead_seconds &&
          known->products == spec.products) {
        return known.get();
      }
    }
    graph_.specs_.push_back(std::make_unique<DeviceSpec>(spec));
    return graph_.specs_.back().get();
  }

  absl::Status AddMachines(const v1::Machine& machine, const std::string& key) {
    if (machine.name().empty()) return Error(key + ".name", "is missing");
    if (const std::string plain = PlainName(machine.name()); plain != machine.name()) {
      return Error(
          key + ".name",
          StrCat("machine \"", machine.name(),
                 "\": \"/\", \";\" and blanks separate names in plans; rename it, for example to ",
                 plain));
    }
    if (machine.devices().empty())
      return Error(key + ".devices", "machine " + machine.name() + " has no device");
    if (machine.available() < 0) return Error(key + ".available", "must not be negative");
    const int copies = std::max(1, machine.available());
    if (static_cast<int64_t>(graph_.machines_.size()) + copies > kMaxMachines) {
      return Error(key, StrCat("the cluster has more than ", kMaxMachines,
                               " machines; plan for a part of it"));
    }
    for (int copy = 0; copy < copies; ++copy) {
      const std::string name = copies == 1 ? machine.name() : StrCat(machine.name(), ".", copy + 1);
      if (!names_.insert(name).second)
        return Error(key + ".name", StrCat("two machines are named ", name));
      if (absl::Status s = AddMachine(machine, name, key); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  // Checks a machine with several devices.
  absl::Status CheckInside(const v1::Machine& machine, const v1::Link& inside,
                           const std::string& key) const {
    const bool written = machine.has_inside() || cluster_.tiers().has_machine();
    if (written || inside.bandwidth_bytes_per_second() > 0)
      return CheckLink(inside, key + ".inside");
    return Error(key + ".inside",
                 StrCat("is not given, and kind ", machine.devices(0).kind(),
                        " has no peer_link, so the speed between its devices is unknown; give "
                        "inside or tiers.machine, or the kind's peer_link"));
  }

  // The machine's pool of such devices, a new one where it has none yet.
  DevicePool& PoolOf(int machine, const DeviceSpec* spec, double price_usd_per_hour) {
    for (auto pool = graph_.pools_.rbegin(); pool != graph_.pools_.rend(); ++pool) {
      if (pool->machine != machine) break;
      if (pool->spec == spec && pool->price_usd_per_hour == price_usd_per_hour) return *pool;
    }
    DevicePool& pool = graph_.pools_.emplace_back();
    pool.machine = machine;
    pool.spec = spec;
    pool.price_usd_per_hour = price_usd_per_hour;
    return pool;
  }

  absl::Status AddMachine(const v1::Machine& machine, const std::string& name,
                          const std::string& key) {
    MachineNode node;
    node.name = name;
    node.site = machine.site();
    names_sites_ = names_sites_ || !node.site.empty();
    node.rack = machine.rack();
    if (machine.has_uplink()) {
      if (absl::Status s = CheckLink(machine.uplink(), key + ".uplink"); !s.ok()) return s;
      node.uplink = ToSpec(machine.uplink());
    }
    std::vector<Slot> slots;
    v1::Link inside;
    for (int i = 0; i < machine.devices_size(); ++i) {
      const v1::DeviceGroup& group = machine.devices(i);
      const std::string at = StrCat(key, ".devices[", i, "]");
      if (group.count() < 0) return Error(at + ".count", "must not be negative");
      const std::string wrong = group.has_profile() ? WhyNoProfile(group.profile()) : "";
      if (!wrong.empty()) return Error(at + ".profile", wrong);
      const absl::StatusOr<v1::DeviceKind> kind = KindNamed(group.kind(), at + ".kind");
      if (!kind.ok()) return kind.status();
      // Unlike kinds of one machine meet at the pace of the slower's link.
      const v1::Link& peer = kind->peer_link();
      if (peer.bandwidth_bytes_per_second() > 0 &&
          (inside.bandwidth_bytes_per_second() == 0 ||
           peer.bandwidth_bytes_per_second() < inside.bandwidth_bytes_per_second())) {
        inside = peer;
      }
      if (group.count() > kMaxDevicesPerMachine - static_cast<int>(slots.size())) {
        return Error(at + ".count",
                     StrCat("a machine has at most ", kMaxDevicesPerMachine, " devices"));
      }
      if (group.price_usd_per_hour() > 0 && machine.price_usd_per_hour() > 0) {
        return Error(at + ".price",
                     StrCat("machine ", machine.name(),
                            " has a price as well: give only the machine's price if it is rented "
                            "as a whole, only its devices' prices if each is rented by itself"));
      }
      const double price =
          group.price_usd_per_hour() > 0 ? group.price_usd_per_hour() : kind->price_usd_per_hour();
      slots.insert(slots.end(), static_cast<size_t>(std::max(1, group.count())),
                   {Intern(DescribedDevice(*kind, group)), price});
    }
    if (cluster_.tiers().has_machine()) inside = cluster_.tiers().machine();
    if (machine.has_inside()) inside = machine.inside();
    if (slots.size() > 1) {
      if (absl::Status s = CheckInside(machine, inside, key); !s.ok()) return s;
    }
    if (machine.price_usd_per_hour() > 0) {
      for (Slot& slot : slots)
        slot.price_usd_per_hour = machine.price_usd_per_hour() / static_cast<double>(slots.size());
    }
    node.price_usd_per_hour = machine.price_usd_per_hour();
    node.inside = slots.size() > 1 ? SpecOf(inside, kMachineTier) : ToSpec(inside);
    return AddNodes(machine, key, slots, node);
  }

  struct Slot {
    const DeviceSpec* spec = nullptr;
    double price_usd_per_hour = 0;
  };

  // One node for devices that are joined alike; of most machines all are.
  absl::Status AddNodes(const v1::Machine& machine, const std::string& key,
                        const std::vector<Slot>& slots, const MachineNode& node) {
    const int first = static_cast<int>(graph_.machines_.size());
    const absl::StatusOr<DeviceJoints> joints =
        JointsOf(machine, key, static_cast<int>(slots.size()), node.inside);
    if (!joints.ok()) return joints.status();
    for (const std::vector<int>& members : joints->groups()) {
      const int index = static_cast<int>(graph_.machines_.size());
      for (const int device : members) {
        const Slot& slot = slots[static_cast<size_t>(device)];
        DevicePool& pool = PoolOf(index, slot.spec, slot.price_usd_per_hour);
        ++pool.count;
        pool.indices.push_back(device);
      }
      graph_.machines_.push_back(node);
      graph_.machines_.back().host = first;
      if (members.size() > 1) graph_.machines_.back().inside = joints->Slowest(members, members);
      for (int other = first; other < index; ++other) {
        const LinkSpec link =
            joints->Slowest(joints->groups()[static_cast<size_t>(other - first)], members);
        inner_links_[{other, index}] = inner_links_[{index, other}] = link;
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<DeviceJoints> JointsOf(const v1::Machine& machine, const std::string& key,
                                        int devices, const LinkSpec& inside) {
    if (absl::Status s = CheckPairs(machine, key, devices); !s.ok()) return s;
    std::vector<DeviceJoint> pairs;
    for (const v1::DevicePair& pair : machine.pairs()) {
      pairs.push_back({pair.device(), pair.has_to() ? pair.to() : kAllOthers,
                       SpecOf(pair.link(), kMachineTier)});
    }
    return DeviceJoints(devices, inside, pairs);
  }

  absl::Status CheckPairs(const v1::Machine& machine, const std::string& key, int devices) const {
    constexpr int kMaxPairedDevices = 64;
    if (machine.pairs().empty()) return absl::OkStatus();
    if (machine.price_usd_per_hour() > 0) {
      return Error(key + ".pairs", StrCat("machine ", machine.name(),
                                          " has a price as a whole; give its devices prices"));
    }
    if (devices > kMaxPairedDevices) {
      return Error(key + ".pairs",
                   StrCat("are for machines of at most ", kMaxPairedDevices, " devices"));
    }
    std::set<std::pair<int, int>> seen;
    for (int i = 0; i < machine.pairs_size(); ++i) {
      const v1::DevicePair& pair = machine.pairs(i);
      const std::string at = StrCat(key, ".pairs[", i, "]");
      for (const int device : {pair.device(), pair.has_to() ? pair.to() : pair.device()}) {
        if (device < 0 || device >= devices) {
          return Error(at, StrCat("machine ", machine.name(), " has no device ", device,
                                  "; its devices are 0 to ", devices - 1));
        }
      }
      if (pair.has_to() && pair.to() == pair.device())
        return Error(at, "joins a device to itself; leave out `to` for its link to all others");
      const int to = pair.has_to() ? pair.to() : -1;
      if (!seen.insert(std::minmax(pair.device(), to)).second)
        return Error(at, "says again what an earlier pair says; keep one");
      if (absl::Status s = CheckLink(pair.link(), at + ".link"); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  const v1::Link* PairLinkOf(const MachineNode& from, const MachineNode& to) const {
    const v1::Link* by_site = nullptr;
    for (const v1::PairLink& pair : cluster_.links()) {
      const auto matches = [&](const std::string& a, const std::string& b) {
        return (pair.from() == a && pair.to() == b) ||
               (!pair.one_way() && pair.from() == b && pair.to() == a);
      };
      if (matches(from.name, to.name)) return &pair.link();
      const bool mixed = matches(from.name, to.site) || matches(from.site, to.name);
      if (mixed || (from.site != to.site && matches(from.site, to.site))) by_site = &pair.link();
    }
    return by_site;
  }

  const v1::Link* TierOf(const MachineNode& from, const MachineNode& to) const {
    const v1::Tiers& tiers = cluster_.tiers();
    if (from.site != to.site) return tiers.has_region() ? &tiers.region() : nullptr;
    if (!from.rack.empty() && from.rack == to.rack && tiers.has_rack()) return &tiers.rack();
    if (tiers.has_site()) return &tiers.site();
    // One rack is all there is where nobody names racks or sites.
    if (from.rack == to.rack && tiers.has_rack()) return &tiers.rack();
    return nullptr;
  }

  absl::Status CheckTiersAndPairs() const {
    const v1::Tiers& tiers = cluster_.tiers();
    const std::pair<bool, std::pair<const v1::Link*, const char*>> given[] = {
        {tiers.has_machine(), {&tiers.machine(), "tiers.machine"}},
        {tiers.has_rack(), {&tiers.rack(), "tiers.rack"}},
        {tiers.has_site(), {&tiers.site(), "tiers.site"}},
        {tiers.has_region(), {&tiers.region(), "tiers.region"}}};
    for (const auto& [present, link] : given) {
      if (!present) continue;
      if (absl::Status s = CheckLink(*link.first, link.second); !s.ok()) return s;
    }
    std::set<std::string> places = names_;
    for (const MachineNode& machine : graph_.machines_) {
      if (names_.contains(machine.site)) {
        return Error("machines", StrCat("\"", machine.site, "\" is the name of a machine and of a ",
                                        "site; a link to it would be ambiguous: rename one"));
      }
      places.insert(machine.site);
    }
    std::map<std::pair<std::string, std::string>, int> joined;  // by direction
    for (int i = 0; i < cluster_.links_size(); ++i) {
      const v1::PairLink& pair = cluster_.links(i);
      const std::string key = StrCat("links[", i, "]");
      for (const std::string& end : {pair.from(), pair.to()}) {
        if (end.empty() || !places.contains(end)) {
          return Error(
              key, StrCat("\"", end, "\" is neither a machine nor a site",
                          places.contains(end + ".1") ? StrCat("; of several available there are ",
                                                               end, ".1, ", end, ".2 and so on")
                                                      : std::string()));
        }
      }
      if (pair.from() == pair.to())
        return Error(key, StrCat("leads from ", pair.from(),
                                 " to itself; inside a machine give its inside, within "
                                 "a site tiers.site"));
      if (absl::Status s = CheckLink(pair.link(), key + ".link"); !s.ok()) return s;
      for (const bool back : {false, true}) {
        if (back && pair.one_way()) continue;
        const auto ends =
            back ? std::pair(pair.to(), pair.from()) : std::pair(pair.from(), pair.to());
        const auto [at, fresh] = joined.emplace(ends, i);
        if (fresh) continue;
        return Error(key, StrCat("joins ", ends.first, " to ", ends.second, " as links[",
                                 at->second, "] does already; keep one, or make each one_way"));
      }
    }
    for (const auto& [name, uplink] : site_uplinks_) {
      if (!places.contains(name)) return Error("sites", StrCat("no machine is in site ", name));
      if (uplink->bandwidth_bytes_per_second() <= 0)
        return Error("sites", StrCat(name, ".uplink: must be above 0"));
    }
    return absl::OkStatus();
  }

  absl::Status Connect() {
    if (absl::Status s = CheckTiersAndPairs(); !s.ok()) return s;
    if (absl::Status s = FindPlaces(); !s.ok()) return s;
    const size_t places = members_.size();
    form_.links.resize(places * places);
    form_.near_seconds.resize(places * places);
    far_pairs_.resize(places * places);
    for (size_t a = 0; a < places; ++a) {
      for (size_t b = 0; b < places; ++b) {
        // Two different machines of these places stand for all; there may be only one.
        if (a == b && members_[a].size() == 1) continue;
        const absl::Status linked = LinkPlaces(a, b);
        if (!linked.ok()) return linked;
      }
    }
    Group();
    Merge();
    return absl::OkStatus();
  }

  // Groups of machines that are near each other. A pair that joins two of them is as far as another
  // region where nothing else is said.
  void Group() {
    const std::vector<int> groups = NearPlaces(form_);
    graph_.groups_ = 0;
    std::map<int, int> numbers;  // by first appearance among machines
    for (size_t m = 0; m < graph_.machines_.size(); ++m) {
      const int group = groups[graph_.place_of_[m]];
      const bool fresh = group < 0 || numbers.try_emplace(group, graph_.groups_).second;
      graph_.machines_[m].group = fresh ? graph_.groups_++ : numbers[group];
    }
    for (size_t i = 0; i < form_.links.size(); ++i) {
      if (!far_pairs_[i]) continue;
      const size_t a = i / members_.size(), b = i % members_.size();
      const bool far =
          graph_.machines_[members_[a].front()].group != graph_.machines_[members_[b].back()].group;
      const Tier& tier = far ? kRegionTier : kSiteTier;
      LinkSpec& link = form_.links[i];
      link.latency_seconds = std::max(link.latency_seconds, tier.latency_seconds);
      graph_.default_latencies_[tier.name] = tier.latency_seconds;
    }
  }

  // Places of equal links become one.
  void Merge() {
    const std::vector<int> merged = AlikePlaces(form_), wide = WidePlaces(form_);
    const size_t places = members_.size();
    graph_.places_ = static_cast<size_t>(*std::max_element(merged.begin(), merged.end())) + 1;
    graph_.links_.resize(graph_.places_ * graph_.places_);
    for (size_t a = 0; a < places; ++a) {
      for (size_t b = 0; b < places; ++b) {
        if (a == b && members_[a].size() == 1) continue;
        graph_.links_[static_cast<size_t>(merged[a]) * graph_.places_ +
                      static_cast<size_t>(merged[b])] = form_.links[a * places + b];
      }
    }
    for (size_t m = 0; m < graph_.machines_.size(); ++m) {
      graph_.machines_[m].wide_place = wide[graph_.place_of_[m]];
      graph_.machines_[m].place = merged[graph_.place_of_[m]];
      graph_.place_of_[m] = static_cast<size_t>(graph_.machines_[m].place);
    }
  }

  // Machines of one site and rack with like uplinks, that no pair names, have the same links to all
  // others: they are one place.
  absl::Status FindPlaces() {
    std::set<std::string> named;
    for (const v1::PairLink& pair : cluster_.links()) named.insert({pair.from(), pair.to()});
    std::map<std::tuple<std::string, std::string, LinkSpec, std::string>, size_t> places;
    std::map<std::string_view, int> shares;
    for (size_t m = 0; m < graph_.machines_.size(); ++m) {
      const MachineNode& machine = graph_.machines_[m];
      const LinkSpec uplink = machine.uplink.value_or(LinkSpec());
      const bool several = inner_links_.lower_bound({static_cast<int>(m), 0}) !=
                           inner_links_.lower_bound({static_cast<int>(m) + 1, 0});
      const std::string name = several                        ? StrCat(machine.name, "/", m)
                               : named.contains(machine.name) ? machine.name
                                                              : "";
      const auto [at, fresh] =
          places.emplace(std::tuple(machine.site, machine.rack, uplink, name), members_.size());
      if (fresh) {
        members_.emplace_back();
        form_.machines.push_back(0);
        form_.uplinks.push_back(uplink);
        form_.shares.push_back(
            shares.try_emplace(graph_.UplinkSite(static_cast<int>(m)), shares.size())
                .first->second);
      }
      members_[at->second].push_back(m);
      ++form_.machines[at->second];
      graph_.place_of_.push_back(at->second);
    }
    if (members_.size() <= kMaxPlaces) return absl::OkStatus();
    return Error("machines", StrCat("the machines are in more than ", kMaxPlaces,
                                    " places with links of their own; plan for a part of them"));
  }

  const Tier& TierBetween(const MachineNode& from, const MachineNode& to) const {
    if (from.site != to.site) return kRegionTier;
    const bool rack = from.rack == to.rack && (!from.rack.empty() || !cluster_.tiers().has_site());
    return rack && cluster_.tiers().has_rack() ? kRackTier : kSiteTier;
  }

  absl::Status LinkPlaces(size_t a, size_t b) {
    const auto inner = inner_links_.find(
        {static_cast<int>(members_[a].front()), static_cast<int>(members_[b].back())});
    if (inner != inner_links_.end()) {
      form_.links[a * members_.size() + b] = inner->second;
      return absl::OkStatus();
    }
    const MachineNode& from = graph_.machines_[members_[a].front()];
    const MachineNode& to = graph_.machines_[members_[b].back()];
    const v1::Link* pair = PairLinkOf(from, to);
    const v1::Link* given = pair != nullptr ? pair : TierOf(from, to);
    if (given == nullptr) {
      return Error("tiers", StrCat("machine ", to.name, " cannot be reached from ", from.name,
                                   ": give tiers.", from.site == to.site ? "site" : "region",
                                   " or a pair under links"));
    }
    const size_t at = a * members_.size() + b;
    far_pairs_[at] = pair != nullptr && !pair->has_latency_seconds() && !names_sites_;
    LinkSpec& link = form_.links[at];
    link = far_pairs_[at] ? ToSpec(*given) : SpecOf(*given, TierBetween(from, to));
    if (from.uplink) Narrow(&link, *from.uplink);
    if (to.uplink) Narrow(&link, *to.uplink);
    for (const std::string& site : {from.site, to.site}) {
      const auto uplink = site_uplinks_.find(site);
      if (from.site != to.site && uplink != site_uplinks_.end())
        Narrow(&link, ToSpec(*uplink->second));
    }
    constexpr double kMessageBytes = 1e6;
    form_.near_seconds[at] = kMessageBytes / link.bytes_per_second +
                             (given->has_latency_seconds() ? link.latency_seconds : 0);
    return absl::OkStatus();
  }

  const v1::Cluster& cluster_;
  const v1::DeviceCatalogue& catalogue_;
  std::string file_;
  std::set<std::string> names_;
  std::map<std::string, const v1::Link*> site_uplinks_;
  bool names_sites_ = false;                  // some machine does
  std::vector<std::vector<size_t>> members_;  // machines, by place
  PlaceLinks form_;
  std::map<std::pair<int, int>, LinkSpec> inner_links_;  // between nodes of one machine
  std::vector<bool> far_pairs_;  // by two places: whether the latency of their pair is not known
  ClusterGraph graph_;
};

absl::StatusOr<ClusterGraph> MakeClusterGraph(const v1::Cluster& cluster,
                                              const v1::DeviceCatalogue& catalogue,
                                              std::string_view file) {
  return ClusterGraphBuilder(cluster, catalogue, file).Build();
}

}  // namespace tessera::scheduler
