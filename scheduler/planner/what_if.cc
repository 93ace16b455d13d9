#include "scheduler/planner/what_if.h"

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
      if (words.empty()) return Error("does not say of what");
      return sign == '+' ? Add(words) : Remove(words);
    }
    if (words[0] == "link" && words.size() >= 3) return SetLink(words);
    if (words[0] == "uplink" && words.size() >= 3) return SetUplink(words);
    if (words[0] == "tier" && words.size() >= 3) return SetTier(words);
    if (words[0] == "budget" && words.size() >= 2) return SetBudget(words);
    return Error(
        "is not understood; write \"+2 L40S\", \"-machine3\", \"link a-b 10 Gbit/s\", \"uplink a "
        "10 "
        "Gbit/s\", \"tier site 10 Gbit/s\" or \"budget 20 USD/h\"");
  }

 private:
  absl::Status Error(std::string_view reason) const {
    return absl::InvalidArgumentError(StrCat("--what-if: \"", change_, "\": ", reason));
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

  absl::Status Add(const std::vector<std::string>& words) {
    int count = 1;
    size_t at = IsCount(words[0], &count) ? 1 : 0;
    if (at >= words.size()) return Error("does not say what kind of device");
    const std::string& kind = words[at++];
    std::string machine_name, site;
    if (at + 1 < words.size() && words[at] == "on") machine_name = words[at + 1];
    if (at + 1 < words.size() && words[at] == "at") site = words[at + 1];
    if (at != words.size() && (at + 2 != words.size() || (machine_name.empty() && site.empty())))
      return Error("ends in something else than \"on MACHINE\" or \"at SITE\"");
    v1::Machine* machine = nullptr;
    if (!machine_name.empty()) {
      machine = MachineNamed(machine_name);
      if (machine == nullptr) return Error(StrCat("there is no machine called ", machine_name));
    } else {
      const v1::Machine* beside = Neighbour(kind, site);
      if (beside == nullptr) return Error(StrCat("there is no site called ", site));
      const std::string neighbour_site = beside->site(), rack = beside->rack();
      std::string name = "added";
      for (int i = 2; MachineNamed(name) != nullptr; ++i) name = StrCat("added-", i);
      machine = cluster_.add_machines();
      machine->set_name(name);
      machine->set_site(neighbour_site);
      machine->set_rack(rack);
    }
    for (v1::DeviceGroup& group : *machine->mutable_devices()) {
      if (group.kind() != kind) continue;
      group.set_count(std::max(1, group.count()) + count);
      return absl::OkStatus();
    }
    v1::DeviceGroup* group = machine->add_devices();
    group->set_kind(kind);
    group->set_count(count);
    return absl::OkStatus();
  }

  absl::Status Remove(const std::vector<std::string>& words) {
    int count = 0;
    if (words.size() == 2 && IsCount(words[0], &count)) return RemoveDevices(words[1], count);
    if (words.size() != 1) return Error("is not understood; write \"-machine3\" or \"-2 L40S\"");
    auto* machines = cluster_.mutable_machines();
    const int before = machines->size();
    for (int i = before - 1; i >= 0; --i) {
      if (machines->Get(i).name() == words[0] || machines->Get(i).site() == words[0])
        machines->DeleteSubrange(i, 1);
    }
    if (machines->size() == before && !RemoveCopy(words[0]))
      return Error(StrCat("there is no machine or site called ", words[0]));
    return DropDangling();
  }

  // "h100x2.3": one of several machines that a market offers; they are all alike.
  bool RemoveCopy(const std::string& name) {
    const size_t dot = name.rfind('.');
    int copy = 0;
    if (dot == std::string::npos || !IsCount(name.substr(dot + 1), &copy)) return false;
    v1::Machine* machine = MachineNamed(name.substr(0, dot));
    if (machine == nullptr || copy > machine->available()) return false;
    machine->set_available(machine->available() - 1);
    return true;
  }

  absl::Status RemoveDevices(const std::string& kind, int count) {
    int left = count;
    auto* machines = cluster_.mutable_machines();
    for (int m = machines->size() - 1; m >= 0; --m) {
      auto* groups = machines->Mutable(m)->mutable_devices();
      for (int g = groups->size() - 1; g >= 0 && left > 0; --g) {
        if (groups->Get(g).kind() != kind) continue;
        const int has = std::max(1, groups->Get(g).count());
        const int taken = std::min(has, left);
        left -= taken;
        groups->Mutable(g)->set_count(has - taken);
        if (taken == has) groups->DeleteSubrange(g, 1);
      }
      if (groups->empty()) machines->DeleteSubrange(m, 1);
    }
    if (left > 0) return Error(StrCat("the cluster has only ", count - left, " ", kind));
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

  // Of the tier of the two; nothing where the tier gives none.
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
