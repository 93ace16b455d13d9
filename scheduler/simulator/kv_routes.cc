#include "scheduler/simulator/kv_routes.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "scheduler/cost/hand_over_bytes.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

class Routes {
 public:
  Routes(const v1::DeploymentPlan& plan, const ClusterGraph& graph, const ModelShape& model)
      : plan_(plan), graph_(graph) {
    rates_.Limit(graph.kv_codec_bytes_per_second());
    for (size_t m = 0; m < graph.machines().size(); ++m)
      machine_[graph.machines()[m].name] = static_cast<int>(m);
    bytes_per_layer_ = KvBytesPerToken(model) / model.layers;
    state_bytes_per_layer_ = StateBytesHandedOver(model) / model.layers;
    element_bytes_ = KvElementBytes(model);
    setup_.layers = model.layers;
    out_.hop_bytes_per_row = static_cast<double>(model.hidden) * model.wire_bytes_per_element;
  }

  PlanLinks Make() {
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
    for (const v1::Replica& replica : plan_.replicas()) out_.hop_links.push_back(Hops(replica));
    out_.transfers = std::move(setup_);
    return std::move(out_);
  }

 private:
  int MachineOf(const v1::Stage& stage) const {
    const std::string& device = stage.workers(0).device();
    return machine_.at(device.substr(0, device.rfind('/')));
  }

  KvCodec CodecBetween(const std::string& prefill, const std::string& decode) const {
    for (const v1::RoutingShare& share : plan_.routing()) {
      if (share.prefill_replica() != prefill || share.decode_replica() != decode) continue;
      for (const KvCodec codec : {KvCodec::kInt8, KvCodec::kInt4}) {
        if (share.kv_codec() == Name(codec)) return codec;
      }
    }
    return KvCodec::kRaw;
  }

  std::vector<std::vector<int>> Hops(const v1::Replica& replica) {
    std::vector<std::vector<int>> hops;
    for (int j = 0; j + 1 < replica.stages_size(); ++j) {
      const int from = MachineOf(replica.stages(j)), to = MachineOf(replica.stages(j + 1));
      hops.push_back(from == to ? std::vector<int>() : LinksBetween(from, to));
    }
    return hops;
  }

  std::vector<KvStream> Between(const v1::Replica& prefill, const v1::Replica& decode) {
    std::vector<KvStream> streams;
    const KvCodec codec = CodecBetween(prefill.name(), decode.name());
    const double ratio = KvCodecRatio(codec, element_bytes_);
    for (int i = 0; i < prefill.stages_size(); ++i) {
      const v1::Stage& from = prefill.stages(i);
      const v1::Range& mine = from.workers(0).share().layers();
      for (int k = 0; k < decode.stages_size(); ++k) {
        const v1::Stage& to = decode.stages(k);
        const v1::Range& theirs = to.workers(0).share().layers();
        const int64_t layers =
            std::min(mine.end(), theirs.end()) - std::max(mine.begin(), theirs.begin());
        if (layers <= 0) continue;
        streams.push_back(
            Stream(MachineOf(from), MachineOf(to), static_cast<double>(layers), ratio));
        if (codec == KvCodec::kRaw) continue;
        // In bytes on the wire, as everything else that the stream passes.
        streams.back().links.push_back(
            Coder(StrCat(prefill.name(), " stage ", i, " encodes ", Name(codec)),
                  rates_.encode_bytes_per_second * ratio));
        streams.back().links.push_back(
            Coder(StrCat(decode.name(), " stage ", k, " decodes ", Name(codec)),
                  rates_.decode_bytes_per_second * ratio));
      }
    }
    return streams;
  }

  KvStream Stream(int from, int to, double layers, double ratio) {
    KvStream stream;
    stream.bytes_per_token = layers * ratio * bytes_per_layer_;
    stream.bytes_per_prompt = layers * state_bytes_per_layer_;
    stream.latency_seconds = graph_.Between(from, to).latency_seconds;
    stream.links = LinksBetween(from, to);
    return stream;
  }

  std::vector<int> LinksBetween(int from, int to) {
    const MachineNode& a = graph_.machines()[static_cast<size_t>(from)];
    const MachineNode& b = graph_.machines()[static_cast<size_t>(to)];
    std::vector<int> links = {Link(StrCat(a.name, " > ", b.name), graph_.Between(from, to))};
    if (from == to) return links;
    if (a.uplink) links.push_back(Link(StrCat(a.name, " out"), *a.uplink));
    if (b.uplink) links.push_back(Link(StrCat(b.name, " in"), *b.uplink));
    if (a.site == b.site) return links;
    const auto& sites = graph_.site_uplinks();
    if (const auto out = sites.find(a.site); out != sites.end())
      links.push_back(Link(StrCat("site ", a.site, " out"), out->second));
    if (const auto in = sites.find(b.site); in != sites.end())
      links.push_back(Link(StrCat("site ", b.site, " in"), in->second));
    return links;
  }

  int Coder(const std::string& name, double wire_bytes_per_second) {
    LinkSpec coder;
    coder.bytes_per_second = wire_bytes_per_second;
    return Link(name, coder);
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
  KvCodecRates rates_;
  double bytes_per_layer_ = 0, state_bytes_per_layer_ = 0;
  double element_bytes_ = 2;
  std::map<std::string, int> machine_;
  std::map<std::string, int> link_;
  TransferSetup setup_;
  PlanLinks out_;
};

}  // namespace

PlanLinks LinksOfPlan(const v1::DeploymentPlan& plan, const ClusterGraph& graph,
                      const ModelShape& model) {
  return Routes(plan, graph, model).Make();
}

double KvSecondsPerToken(const TransferSetup& transfers, size_t replicas, int prefill, int decode) {
  const size_t route = static_cast<size_t>(prefill) * replicas + static_cast<size_t>(decode);
  if (route >= transfers.routes.size()) return 0;
  std::map<int, double> bytes;  // by link, of a token
  for (const KvStream& stream : transfers.routes[route]) {
    for (const int link : stream.links) bytes[link] += stream.bytes_per_token;
  }
  double seconds = 0;
  for (const auto& [link, load] : bytes) {
    const double rate = transfers.links[static_cast<size_t>(link)].bytes_per_second;
    if (rate > 0) seconds = std::max(seconds, load / rate);
  }
  return seconds;
}

}  // namespace tessera::scheduler
