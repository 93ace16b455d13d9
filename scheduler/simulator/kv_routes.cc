#include "scheduler/simulator/kv_routes.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

class Routes {
 public:
  Routes(const v1::DeploymentPlan& plan, const ClusterGraph& graph, const ModelShape& model)
      : plan_(plan), graph_(graph) {
    for (size_t m = 0; m < graph.machines().size(); ++m)
      machine_[graph.machines()[m].name] = static_cast<int>(m);
    bytes_per_layer_ = KvBytesPerToken(model) / model.layers;
    element_bytes_ = model.kv_bytes_per_element;
    setup_.layers = model.layers;
  }

  TransferSetup Make() {
    const int replicas = plan_.replicas_size();
    setup_.routes.resize(static_cast<size_t>(replicas) * static_cast<size_t>(replicas));
    for (int p = 0; p < replicas; ++p) {
      if (plan_.replicas(p).role() != v1::REPLICA_ROLE_PREFILL) continue;
      for (int d = 0; d < replicas; ++d) {
        if (plan_.replicas(d).role() != v1::REPLICA_ROLE_DECODE) continue;
        setup_.routes[static_cast<size_t>(p * replicas + d)] =
            Between(plan_.replicas(p), plan_.replicas(d));
      }
    }
    return std::move(setup_);
  }

 private:
  int MachineOf(const v1::Stage& stage) const {
    const std::string& device = stage.workers(0).device();
    return machine_.at(device.substr(0, device.rfind('/')));
  }

  double RatioBetween(const std::string& prefill, const std::string& decode) const {
    for (const v1::RoutingShare& share : plan_.routing()) {
      if (share.prefill_replica() != prefill || share.decode_replica() != decode) continue;
      for (const KvCodec codec : {KvCodec::kInt8, KvCodec::kInt4}) {
        if (share.kv_codec() == Name(codec)) return KvCodecRatio(codec, element_bytes_);
      }
    }
    return 1;
  }

  std::vector<KvStream> Between(const v1::Replica& prefill, const v1::Replica& decode) {
    std::vector<KvStream> streams;
    const double ratio = RatioBetween(prefill.name(), decode.name());
    for (const v1::Stage& from : prefill.stages()) {
      const v1::Range& mine = from.workers(0).share().layers();
      for (const v1::Stage& to : decode.stages()) {
        const v1::Range& theirs = to.workers(0).share().layers();
        const int64_t layers =
            std::min(mine.end(), theirs.end()) - std::max(mine.begin(), theirs.begin());
        if (layers > 0)
          streams.push_back(
              Stream(MachineOf(from), MachineOf(to), static_cast<double>(layers) * ratio));
      }
    }
    return streams;
  }

  KvStream Stream(int from, int to, double layers) {
    const LinkSpec& link = graph_.Between(from, to);
    const MachineNode& a = graph_.machines()[static_cast<size_t>(from)];
    const MachineNode& b = graph_.machines()[static_cast<size_t>(to)];
    KvStream stream;
    stream.bytes_per_token = layers * bytes_per_layer_;
    stream.latency_seconds = link.latency_seconds;
    stream.links.push_back(Link(StrCat(a.name, " > ", b.name), link));
    if (from == to) return stream;
    if (a.uplink) stream.links.push_back(Link(StrCat(a.name, " out"), *a.uplink));
    if (b.uplink) stream.links.push_back(Link(StrCat(b.name, " in"), *b.uplink));
    if (a.site == b.site) return stream;
    const auto& sites = graph_.site_uplinks();
    if (const auto out = sites.find(a.site); out != sites.end())
      stream.links.push_back(Link(StrCat("site ", a.site, " out"), out->second));
    if (const auto in = sites.find(b.site); in != sites.end())
      stream.links.push_back(Link(StrCat("site ", b.site, " in"), in->second));
    return stream;
  }

  int Link(const std::string& name, const LinkSpec& spec) {
    const auto [found, is_new] = link_.try_emplace(name, static_cast<int>(setup_.links.size()));
    if (is_new) {
      setup_.links.push_back(
          {name, spec.bytes_per_second, spec.incast_threshold, spec.incast_seconds_per_byte});
    }
    return found->second;
  }

  const v1::DeploymentPlan& plan_;
  const ClusterGraph& graph_;
  double bytes_per_layer_ = 0;
  double element_bytes_ = 2;
  std::map<std::string, int> machine_;
  std::map<std::string, int> link_;
  TransferSetup setup_;
};

}  // namespace

TransferSetup RoutesOfPlan(const v1::DeploymentPlan& plan, const ClusterGraph& graph,
                           const ModelShape& model) {
  return Routes(plan, graph, model).Make();
}

}  // namespace tessera::scheduler
