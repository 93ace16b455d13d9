#include "scheduler/planner/report/link_bundles.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

using Ends = std::pair<std::string, std::string>;

Ends Sorted(std::string a, std::string b) {
  if (b < a) std::swap(a, b);
  return {std::move(a), std::move(b)};
}

class Bundler {
 public:
  Bundler(const v1::DeploymentPlan& plan, const ClusterGraph& graph) : plan_(plan), graph_(graph) {
    for (size_t m = 0; m < graph.machines().size(); ++m)
      machine_[graph.machines()[m].name] = static_cast<int>(m);
    for (const v1::LinkLoad& link : plan.links()) {
      if (IsBetweenSites(link))
        pairs_[Sorted(SiteOf(link.from()), SiteOf(link.to()))].insert(
            Sorted(link.from(), link.to()));
    }
  }

  std::vector<LinkBundle> Run() {
    for (const v1::LinkLoad& link : plan_.links()) {
      const bool uplink = link.to().empty();
      if (!uplink && !(Has(link.from()) && Has(link.to()))) continue;
      Add(link, uplink);
    }
    for (LinkBundle& bundle : bundles_) {
      for (auto* links : {&bundle.there, &bundle.back}) {
        std::stable_sort(links->begin(), links->end(),
                         [](const auto* a, const auto* b) { return LoadOf(*a) > LoadOf(*b); });
      }
    }
    return std::move(bundles_);
  }

 private:
  bool Has(const std::string& machine) const { return machine_.contains(machine); }

  const std::string& SiteOf(const std::string& machine) const {
    return graph_.machines()[static_cast<size_t>(machine_.at(machine))].site;
  }

  bool IsBetweenSites(const v1::LinkLoad& link) const {
    return Has(link.from()) && Has(link.to()) && SiteOf(link.from()) != SiteOf(link.to());
  }

  void Add(const v1::LinkLoad& link, bool uplink) {
    std::string from = link.from(), to = link.to();
    const bool sites =
        IsBetweenSites(link) && pairs_.at(Sorted(SiteOf(from), SiteOf(to))).size() > 1;
    if (sites) {
      from = SiteOf(link.from());
      to = SiteOf(link.to());
    }
    const auto [at, added] = index_.emplace(std::pair(Sorted(from, to), sites), bundles_.size());
    if (added) {
      bundles_.emplace_back();
      bundles_.back().from = from;
      bundles_.back().to = to;
      bundles_.back().sites = sites;
    }
    LinkBundle& bundle = bundles_[at->second];
    (bundle.from == from ? bundle.there : bundle.back).push_back(&link);
    if (uplink) return;
    const LinkSpec& spec = graph_.Between(machine_.at(link.from()), machine_.at(link.to()));
    bundle.latency_seconds = std::max(bundle.latency_seconds, spec.latency_seconds);
  }

  const v1::DeploymentPlan& plan_;
  const ClusterGraph& graph_;
  std::map<std::string, int> machine_;
  std::map<Ends, std::set<Ends>> pairs_;  // of machines, by their sites
  std::map<std::pair<Ends, bool>, size_t> index_;
  std::vector<LinkBundle> bundles_;
};

// "0.120 of 25 Gbit/s, 0.5 %".
std::string LoadText(const v1::LinkLoad& link) {
  return absl::StrFormat("%.3f of %.3g Gbit/s, %.1f %%", link.bytes_per_second() * 8e-9,
                         link.capacity_bytes_per_second() * 8e-9, 100 * LoadOf(link));
}

std::string LatencyText(double seconds) {
  if (seconds <= 0) return "";
  return seconds < 1e-3 ? absl::StrFormat("; %.3g us one way", seconds * 1e6)
                        : absl::StrFormat("; %.3g ms one way", seconds * 1e3);
}

}  // namespace

double LinkBundle::load() const {
  double most = 0;
  for (const auto* links : {&there, &back}) {
    for (const v1::LinkLoad* link : *links) most = std::max(most, LoadOf(*link));
  }
  return most;
}

double LoadOf(const v1::LinkLoad& link) {
  return link.bytes_per_second() / link.capacity_bytes_per_second();
}

std::vector<LinkBundle> LinkBundles(const v1::DeploymentPlan& plan, const ClusterGraph& graph) {
  return Bundler(plan, graph).Run();
}

std::string BundleText(const LinkBundle& bundle) {
  if (bundle.to.empty()) return StrCat("uplink of ", bundle.from, ": ", LoadText(*bundle.there[0]));
  const std::string latency = LatencyText(bundle.latency_seconds);
  if (!bundle.sites) {
    return StrCat(bundle.from, " to ", bundle.to, ": ", LoadText(*bundle.there[0]),
                  bundle.back.empty() ? "" : StrCat("; back ", LoadText(*bundle.back[0])), latency);
  }
  const bool back = bundle.there.empty() ||
                    (!bundle.back.empty() && LoadOf(*bundle.back[0]) > LoadOf(*bundle.there[0]));
  const v1::LinkLoad& busiest = back ? *bundle.back[0] : *bundle.there[0];
  return StrCat("site ", bundle.from, " to site ", bundle.to, ": ", bundle.there.size(),
                bundle.there.size() == 1 ? " link" : " links", " there, ", bundle.back.size(),
                " back, the busiest ", busiest.from(), " to ", busiest.to(), ": ",
                LoadText(busiest), latency);
}

}  // namespace tessera::scheduler
