// Which links a plan's KV and activations pass, and what codecs take.
#include "scheduler/simulator/kv_routes.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "tests/scheduler/cost/shapes.h"

namespace tessera::scheduler {
namespace {

constexpr char kCluster[] = R"(
machines:
- {name: a, site: x, devices: [{kind: A6000, count: 2}], uplink: {bandwidth: 2 GB/s, latency: 50 us}}
- {name: b, site: x, devices: [{kind: A6000, count: 1}]}
- {name: c, site: y, devices: [{kind: A6000, count: 1}]}
sites: [{name: x, uplink: {bandwidth: 500 MB/s, latency: 1 ms}}]
tiers:
  site: {bandwidth: 1 GB/s, latency: 50 us}
  region: {bandwidth: 400 MB/s, latency: 1 ms}
)";

// Prefill on a then b, decode on c; or all in one replica.
constexpr char kPlan[] = R"(
replicas {
  name: "p" role: REPLICA_ROLE_PREFILL
  stages { workers { device: "a/0" share { layers { end: 16 } } } }
  stages { workers { device: "b/0" share { layers { begin: 16 end: 32 } } } }
}
replicas {
  name: "d" role: REPLICA_ROLE_DECODE
  stages { workers { device: "c/0" share { layers { end: 32 } } } }
}
replicas {
  name: "whole" role: REPLICA_ROLE_BOTH
  stages { workers { device: "a/1" share { layers { end: 8 } } } }
  stages { workers { device: "a/0" share { layers { begin: 8 end: 16 } } } }
  stages { workers { device: "c/0" share { layers { begin: 16 end: 32 } } } }
}
)";

struct Case {
  ModelShape model = tests::Llama3_8B();
  v1::DeploymentPlan plan;
  ClusterGraph graph;

  explicit Case(const std::string& codec) {
    v1::Cluster cluster;
    REQUIRE(ReadDocument(kCluster, "c.yaml", &cluster).message() == "");
    graph = *MakeClusterGraph(cluster, *BuiltInDevices(), "c.yaml");
    REQUIRE(google::protobuf::TextFormat::ParseFromString(kPlan, &plan));
    v1::RoutingShare* share = plan.add_routing();
    share->set_prefill_replica("p");
    share->set_decode_replica("d");
    share->set_share(1);
    share->set_kv_codec(codec);
  }

  std::vector<std::string> Names(const PlanLinks& links, const std::vector<int>& which) const {
    std::vector<std::string> names;
    for (const int link : which)
      names.push_back(links.transfers.links[static_cast<size_t>(link)].name);
    return names;
  }
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("KV passes the link and the uplinks, stage by stage") {
  const Case c("raw");
  const PlanLinks links = LinksOfPlan(c.plan, c.graph, c.model);
  const std::vector<KvStream>& streams = links.transfers.routes[1];
  REQUIRE(streams.size() == 2);
  CHECK(c.Names(links, streams[0].links) == Names{"a > c", "a out", "site x out"});
  CHECK(c.Names(links, streams[1].links) == Names{"b > c", "site x out"});
  CHECK(streams[0].bytes_per_token == Approx(16 * KvBytesPerToken(c.model) / 32));
}

TEST_CASE("activations pass the same links; inside a machine nobody's") {
  const Case c("raw");
  const PlanLinks links = LinksOfPlan(c.plan, c.graph, c.model);
  REQUIRE(links.hop_links.size() == 3);
  REQUIRE(links.hop_links[0].size() == 1);
  CHECK(c.Names(links, links.hop_links[0][0]) == Names{"a > b", "a out"});
  CHECK(links.hop_links[1].empty());
  REQUIRE(links.hop_links[2].size() == 2);
  CHECK(links.hop_links[2][0].empty());
  CHECK(c.Names(links, links.hop_links[2][1]) == Names{"a > c", "a out", "site x out"});
  CHECK(links.hop_bytes_per_row == 4096 * 2);
}

TEST_CASE("codecs shrink KV and are passed like links, as fast as the cost model says") {
  const Case c("int8");
  const PlanLinks links = LinksOfPlan(c.plan, c.graph, c.model);
  const std::vector<KvStream>& streams = links.transfers.routes[1];
  REQUIRE(streams.size() == 2);
  CHECK(c.Names(links, streams[1].links) ==
        Names{"b > c", "site x out", "p stage 1 encodes int8", "d stage 0 decodes int8"});
  const double ratio = KvCodecRatio(KvCodec::kInt8, c.model.kv_bytes_per_element);
  CHECK(streams[1].bytes_per_token == Approx(ratio * 16 * KvBytesPerToken(c.model) / 32));
  // Alone, a stream takes as long as the cost model's transfer: the slowest of the three.
  const double raw = 1000 * 16 * KvBytesPerToken(c.model) / 32;
  for (const double bandwidth : {4e8, 1e12}) {
    LinkSpec link;
    link.bytes_per_second = bandwidth;
    const KvTransfer modelled =
        TransferKv({raw, c.model.kv_bytes_per_element}, link, 1, 0, KvCodec::kInt8, {});
    std::vector<SharedLink> shared = links.transfers.links;
    for (const int l : {streams[1].links[0], streams[1].links[1]})
      shared[static_cast<size_t>(l)].bytes_per_second = bandwidth;
    KvNetwork network(shared);
    network.Start(streams[1].links, 1000 * streams[1].bytes_per_token, 0, 0);
    CHECK(network.next_finish_seconds() == Approx(modelled.seconds));
  }
}

}  // namespace tessera::scheduler
