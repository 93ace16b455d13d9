#include "scheduler/planner/advice/what_if.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proto/quantity.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::string part;
  for (const char c : text) {
    if (c != separator) {
      part += c;
      continue;
    }
    parts.push_back(part);
    part.clear();
  }
  parts.push_back(part);
  return parts;
}

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  for (const std::string& word : Split(text, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

bool IsCount(const std::string& word, int* count) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *count);
  return error == std::errc() && end == word.data() + word.size() && *count > 0;
}

constexpr int kMaxChanged = 1'000'000;  // devices; more are looked at by nobody

// Devices of a change: "2 L40S on a", "L40S at oregon".
struct ChangedDevices {
  int count = 1;
  bool counted = false;
  std::string kind;
  std::string machine, site;  // at most one of them
};

class Editor {
 public:
  Editor(std::string change, v1::Cluster* cluster)
      : change_(std::move(change)), cluster_(*cluster) {}

  absl::Status Apply() {
    std::vector<std::string> words = Words(change_);
    if (words.empty()) return Error("is empty");
    const char sign = words[0][0];
    if (sign == '+' || sign == '-') {
      words[0].erase(0, 1);
      if (words[0].empty()) words.erase(words.begin());
      if (words.empty()) return Error("does not say which device or machine");
      return sign == '+' ? Add(words) : Remove(words);
    }
    if (words[0] == "link" && words.size() >= 2) return SetLink(words);
    if (words[0] == "uplink" && words.size() >= 2) return SetUplink(words);
    if (words[0] == "tier" && words.size() >= 2) return SetTier(words);
    if (words[0] == "budget" && words.size() >= 2) return SetBudget(words);
    return Error(
        "is not understood; write \"+2 L40S\", \"-1 L40S on a\", \"-machine3\", \"link a-b 10 "
        "Gbit/s\", \"uplink a 10 Gbit/s\", \"tier site 10 Gbit/s\" or \"budget 20 USD/h\"");
  }

  // A machine, or one of several like it that a market offers.
  absl::Status RemoveMachine(const std::string& name) {
    OneByOne(name);
    auto* machines = cluster_.mutable_machines();
    const auto found = std::find_if(machines->begin(), machines->end(),
                                    [&](const v1::Machine& m) { return m.name() == name; });
    if (found == machines->end()) return Error(StrCat("there is no machine called ", name));
    machines->erase(found);
    return DropDangling();
  }

 private:
  absl::Status Error(std::string_view reason) const {
    return absl::InvalidArgumentError(StrCat("\"", change_, "\": ", reason));
  }

  v1::Machine* MachineNamed(const std::string& name) {
    for (v1::Machine& machine : *cluster_.mutable_machines()) {
      if (machine.name() == name) return &machine;
    }
    return nullptr;
  }

  bool IsSite(const std::string& name) const {
    return std::any_of(cluster_.machines().begin(), cluster_.machines().end(),
                       [&](const v1::Machine& machine) { return machine.site() == name; });
  }

  // The first machine with such devices, else the first at all; of a site where one is named.
  const v1::Machine* Neighbour(const std::string& kind, const std::string& site) const {
    const v1::Machine* beside = nullptr;
    for (const v1::Machine& machine : cluster_.machines()) {
      if (!site.empty() && machine.site() != site) continue;
      if (beside == nullptr) beside = &machine;
      for (const v1::DeviceGroup& group : machine.devices()) {
        if (group.kind() == kind) return &machine;
      }
    }
    return beside;
  }

  // If `name` is one of several like machines ("h100x2.3"), they become machines of their own: a
  // change to one of them is none to the others.
  void OneByOne(const std::string& name) {
    const size_t dot = name.rfind('.');
    int copy = 0;
    if (dot == std::string::npos || !IsCount(name.substr(dot + 1), &copy)) return;
    const v1::Machine* machine = MachineNamed(name.substr(0, dot));
    if (machine == nullptr || machine->available() < 2 || copy > machine->available()) return;
    const v1::Cluster before = cluster_;
    cluster_.clear_machines();
    for (const v1::Machine& old : before.machines()) {
      const int copies = old.name() == name.substr(0, dot) ? old.available() : 0;
      if (copies == 0) *cluster_.add_machines() = old;
      for (int i = 1; i <= copies; ++i) {
        v1::Machine& one = *cluster_.add_machines();
        one = old;
        one.set_name(StrCat(old.name(), ".", i));
        one.clear_available();
        one.clear_spot_available();
        const bool spot = old.spot_available() == 0 || i <= old.spot_available();
        if (!spot) one.clear_spot_price_usd_per_hour();
      }
    }
  }

  absl::StatusOr<ChangedDevices> ReadDevices(const std::vector<std::string>& words) const {
    ChangedDevices out;
    out.counted = IsCount(words[0], &out.count);
    const bool number =
        words.size() > 1 && words[0].find_first_not_of("0123456789.eE+-") == std::string::npos;
    if (number && (!out.counted || out.count > kMaxChanged)) {
      return Error(StrCat("needs a whole number of devices from 1 to ", kMaxChanged, ", not \"",
                          words[0], "\""));
    }
    size_t at = out.counted ? 1 : 0;
    if (at >= words.size()) return Error("does not say what kind of device");
    out.kind = words[at++];
    if (at == words.size()) return out;
    if (at + 2 == words.size() && words[at] == "on") {
      out.machine = words[at + 1];
    } else if (at + 2 == words.size() && words[at] == "at") {
      out.site = words[at + 1];
    } else {
      return Error("ends in something else than \"on MACHINE\" or \"at SITE\"");
    }
    return out;
  }

  // A machine of which there is one alone, so that its devices can be changed.
  absl::StatusOr<v1::Machine*> SingleMachine(const std::string& name) {
    OneByOne(name);
    v1::Machine* machine = MachineNamed(name);
    if (machine == nullptr) return Error(StrCat("there is no machine called ", name));
    if (machine->available() > 1) {
      return Error(StrCat("there are ", machine->available(), " machines ", name, ": name one, ",
                          name, ".1 to ", name, ".", machine->available()));
    }
    return machine;
  }

  absl::Status Add(const std::vector<std::string>& words) {
    const absl::StatusOr<ChangedDevices> added = ReadDevices(words);
    if (!added.ok()) return added.status();
    v1::Machine* machine = nullptr;
    if (!added->machine.empty()) {
      const absl::StatusOr<v1::Machine*> named = SingleMachine(added->machine);
      if (!named.ok()) return named.status();
      machine = *named;
    } else {
      const v1::Machine* beside = Neighbour(added->kind, added->site);
      if (beside == nullptr) return Error(StrCat("there is no site called ", added->site));
      const std::string neighbour_site = beside->site(), rack = beside->rack();
      std::string name = "added";
      for (int i = 2; MachineNamed(name) != nullptr; ++i) name = StrCat("added-", i);
      machine = cluster_.add_machines();
      machine->set_name(name);
      machine->set_site(neighbour_site);
      machine->set_rack(rack);
    }
    for (v1::DeviceGroup& group : *machine->mutable_devices()) {
      if (group.kind() != added->kind) continue;
      group.set_count(std::max(1, group.count()) + added->count);
      return absl::OkStatus();
    }
    v1::DeviceGroup* group = machine->add_devices();
    group->set_kind(added->kind);
    group->set_count(added->count);
    return absl::OkStatus();
  }

  bool HasKind(const v1::Machine& machine, const std::string& kind) const {
    return std::any_of(machine.devices().begin(), machine.devices().end(),
                       [&](const v1::DeviceGroup& group) { return group.kind() == kind; });
  }

  absl::Status Remove(const std::vector<std::string>& words) {
    const absl::StatusOr<ChangedDevices> removed = ReadDevices(words);
    if (!removed.ok()) return removed.status();
    const std::string& name = removed->kind;
    const bool place = !removed->counted && removed->machine.empty() && removed->site.empty();
    if (place && IsSite(name)) {
      auto* machines = cluster_.mutable_machines();
      machines->erase(std::remove_if(machines->begin(), machines->end(),
                                     [&](const v1::Machine& m) { return m.site() == name; }),
                      machines->end());
      return DropDangling();
    }
    if (place) {
      OneByOne(name);
      if (MachineNamed(name) != nullptr) return RemoveMachine(name);
      const auto& machines = cluster_.machines();
      if (std::none_of(machines.begin(), machines.end(),
                       [&](const v1::Machine& m) { return HasKind(m, name); })) {
        return Error(
            StrCat("there is no machine or site called ", name, ", and no device of such a kind"));
      }
    }
    return RemoveDevices(*removed);
  }

  // From the machines named last.
  absl::Status RemoveDevices(const ChangedDevices& removed) {
    if (!removed.machine.empty()) {
      const absl::StatusOr<v1::Machine*> named = SingleMachine(removed.machine);
      if (!named.ok()) return named.status();
    } else if (!removed.site.empty() && !IsSite(removed.site)) {
      return Error(StrCat("there is no site called ", removed.site));
    }
    const auto counts = [&](const v1::Machine& machine) {
      return (removed.machine.empty() || machine.name() == removed.machine) &&
             (removed.site.empty() || machine.site() == removed.site) &&
             HasKind(machine, removed.kind);
    };
    int left = removed.count;
    auto* machines = cluster_.mutable_machines();
    for (int m = machines->size() - 1; m >= 0 && left > 0; --m) {
      if (!counts(machines->Get(m))) continue;
      if (const int copies = machines->Get(m).available(); copies > 1) {
        OneByOne(StrCat(machines->Get(m).name(), ".1"));
        m += copies;  // on to the last of them
        continue;
      }
      auto* groups = machines->Mutable(m)->mutable_devices();
      for (int g = groups->size() - 1; g >= 0 && left > 0; --g) {
        if (groups->Get(g).kind() != removed.kind) continue;
        const int has = std::max(1, groups->Get(g).count());
        const int taken = std::min(has, left);
        left -= taken;
        groups->Mutable(g)->set_count(has - taken);
        if (taken == has) groups->DeleteSubrange(g, 1);
      }
      if (groups->empty()) machines->DeleteSubrange(m, 1);
    }
    if (left > 0) {
      return Error(StrCat(!removed.machine.empty() ? removed.machine
                          : removed.site.empty()   ? std::string("the cluster")
                                                   : removed.site,
                          " has only ", removed.count - left, " ", removed.kind));
    }
    return DropDangling();
  }

  // Links and sites that lost their machines.
  absl::Status DropDangling() {
    if (cluster_.machines().empty()) return Error("no machine would be left");
    std::set<std::string> places;
    for (const v1::Machine& machine : cluster_.machines()) {
      places.insert(machine.name());
      places.insert(machine.site());
      for (int copy = 1; copy <= machine.available(); ++copy)
        places.insert(StrCat(machine.name(), ".", copy));
    }
    auto* links = cluster_.mutable_links();
    for (int i = links->size() - 1; i >= 0; --i) {
      if (!places.contains(links->Get(i).from()) || !places.contains(links->Get(i).to()))
        links->DeleteSubrange(i, 1);
    }
    auto* sites = cluster_.mutable_sites();
    for (int i = sites->size() - 1; i >= 0; --i) {
      if (!places.contains(sites->Get(i).name())) sites->DeleteSubrange(i, 1);
    }
    return absl::OkStatus();
  }

  // "10 Gbit/s 0.1 ms", "10Gbit/s": the latency stays where it is not given.
  absl::Status ReadLink(const std::vector<std::string>& words, size_t at, v1::Link* link) const {
    std::vector<std::string> quantities;
    for (; at < words.size(); ++at) {
      const bool number = words[at].find_first_not_of("0123456789.eE+-") == std::string::npos;
      if (number && at + 1 < words.size()) {
        quantities.push_back(StrCat(words[at], " ", words[at + 1]));
        ++at;
      } else {
        quantities.push_back(words[at]);
      }
    }
    if (quantities.empty() || quantities.size() > 2)
      return Error("needs a bandwidth, and may have a latency: \"10 Gbit/s 0.1 ms\"");
    const absl::StatusOr<double> rate = ParseQuantity(quantities[0], Dimension::kBytesPerSecond);
    if (!rate.ok()) return Error(StdView(rate.status().message()));
    link->set_bandwidth_bytes_per_second(*rate);
    if (quantities.size() == 1) return absl::OkStatus();
    const absl::StatusOr<double> latency = ParseQuantity(quantities[1], Dimension::kSeconds);
    if (!latency.ok()) return Error(StdView(latency.status().message()));
    link->set_latency_seconds(*latency);
    return absl::OkStatus();
  }

  bool IsPlace(const std::string& name) {
    if (MachineNamed(name) != nullptr || IsSite(name)) return true;
    const size_t dot = name.rfind('.');
    return dot != std::string::npos && MachineNamed(name.substr(0, dot)) != nullptr;
  }

  absl::Status SetLink(const std::vector<std::string>& words) {
    // Names may hold dashes themselves: the first cut between two places counts.
    const std::string& both = words[1];
    for (size_t dash = both.find('-'); dash != std::string::npos; dash = both.find('-', dash + 1)) {
      const std::string from = both.substr(0, dash), to = both.substr(dash + 1);
      if (!IsPlace(from) || !IsPlace(to)) continue;
      std::optional<double> latency = TierLatency(from, to);
      auto* links = cluster_.mutable_links();
      for (int i = links->size() - 1; i >= 0; --i) {
        const v1::PairLink& pair = links->Get(i);
        if (!(pair.from() == from && pair.to() == to) && !(pair.from() == to && pair.to() == from))
          continue;
        if (pair.link().has_latency_seconds()) latency = pair.link().latency_seconds();
        links->DeleteSubrange(i, 1);
      }
      v1::PairLink* pair = links->Add();
      pair->set_from(from);
      pair->set_to(to);
      if (latency) pair->mutable_link()->set_latency_seconds(*latency);
      return ReadLink(words, 2, pair->mutable_link());
    }
    return Error(StrCat("\"", both, "\" is no pair of machines or sites; write for example a-b"));
  }

  // The latency of the tier of the two; nothing where the tier gives none.
  std::optional<double> TierLatency(const std::string& from, const std::string& to) {
    const v1::Machine* a = MachineNamed(from);
    const v1::Machine* b = MachineNamed(to);
    const v1::Tiers& tiers = cluster_.tiers();
    const bool apart = a == nullptr || b == nullptr || a->site() != b->site();
    const bool rack = !apart && tiers.has_rack() && a->rack() == b->rack();
    const v1::Link& tier = apart ? tiers.region() : rack ? tiers.rack() : tiers.site();
    return tier.has_latency_seconds() ? std::optional(tier.latency_seconds()) : std::nullopt;
  }

  absl::Status SetUplink(const std::vector<std::string>& words) {
    if (v1::Machine* machine = MachineNamed(words[1]))
      return ReadLink(words, 2, machine->mutable_uplink());
    if (!IsSite(words[1])) return Error(StrCat("there is no machine or site called ", words[1]));
    for (v1::Site& site : *cluster_.mutable_sites()) {
      if (site.name() == words[1]) return ReadLink(words, 2, site.mutable_uplink());
    }
    v1::Site* site = cluster_.add_sites();
    site->set_name(words[1]);
    return ReadLink(words, 2, site->mutable_uplink());
  }

  absl::Status SetTier(const std::vector<std::string>& words) {
    v1::Tiers& tiers = *cluster_.mutable_tiers();
    if (words[1] == "machine") return ReadLink(words, 2, tiers.mutable_machine());
    if (words[1] == "rack") return ReadLink(words, 2, tiers.mutable_rack());
    if (words[1] == "site") return ReadLink(words, 2, tiers.mutable_site());
    if (words[1] == "region") return ReadLink(words, 2, tiers.mutable_region());
    return Error(StrCat("\"", words[1], "\" is none of machine, rack, site, region"));
  }

  absl::Status SetBudget(const std::vector<std::string>& words) {
    std::string text = words[1];
    if (words.size() > 2) text += " " + words[2];
    const absl::StatusOr<double> budget = ParseQuantity(text, Dimension::kUsdPerHour);
    if (!budget.ok()) return Error(StdView(budget.status().message()));
    cluster_.set_budget_usd_per_hour(*budget);
    return absl::OkStatus();
  }

  const std::string change_;
  v1::Cluster& cluster_;
};

}  // namespace

absl::Status RemoveMachines(const std::set<std::string>& names, v1::Cluster* cluster) {
  for (const std::string& name : names) {
    if (absl::Status s = Editor("-" + name, cluster).RemoveMachine(name); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status ApplyChanges(std::string_view changes, v1::Cluster* cluster) {
  for (const std::string& change : Split(changes, ',')) {
    const size_t first = change.find_first_not_of(' ');
    if (absl::Status s =
            Editor(first == std::string::npos ? "" : change.substr(first), cluster).Apply();
        !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::scheduler
