#include "tls/tls_probe.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/temporary_folder.h"
#include "tests/tls/grpc_listener.h"
#include "tests/tls/issued.h"
#include "tls/cluster_tls.h"

namespace tessera {
namespace {

using Catch::Contains;
using tests::ForLocalhost;
using tests::GrpcListener;
using tests::Issue;
using tests::IssueAuthority;
using tests::Issued;
using tests::IssueOptions;

const Issued& Authority() {
  static const auto& authority = *new Issued(IssueAuthority("Tessera cluster ours"));
  return authority;
}

Issued Member(const Issued& authority, const std::string& machine, bool coordinator = false) {
  IssueOptions options = ForLocalhost();
  options.common_name = machine;
  options.names = {kWorkerServerName};
  if (coordinator) options.names.push_back(kCoordinatorServerName);
  options.addresses = {};
  return Issue(authority, options);
}

// As --cluster-tls gives them.
ClientTls Of(const Issued& authority, const Issued& own) {
  return {.authorities = authority.certificate,
          .chain = own.certificate,
          .key = own.key,
          .server_name = kCoordinatorServerName};
}

absl::Status Probe(const GrpcListener& listener, const ClientTls& tls, bool of_cluster) {
  return ProbeTls(
      {.address = listener.address(), .tls = tls, .of_cluster = of_cluster, .timeout_seconds = 10});
}

std::string Why(const absl::Status& status) {
  CHECK(absl::IsFailedPrecondition(status));
  return std::string(status.message());
}

}  // namespace

TEST_CASE("members of one cluster take each other, and of each stranger it is said what is wrong") {
  const Issued other = IssueAuthority("Tessera cluster other");
  const Issued coordinator = Member(Authority(), "coordinator", true);
  const GrpcListener listener(coordinator, Authority().certificate);
  const ClientTls member = Of(Authority(), Member(Authority(), "box"));
  CHECK(Probe(listener, member, true).ok());

  CHECK_THAT(Why(Probe(listener, {}, false)),
             Contains("the certificate of a cluster (signed by Tessera cluster ours)") &&
                 Contains("give --cluster-tls"));
  CHECK_THAT(Why(Probe(listener, Of(other, Member(other, "box")), true)),
             Contains("of coordinator, signed by Tessera cluster ours") &&
                 Contains("not the authority in this side's --cluster-tls"));
  ClientTls bare = member;
  bare.chain = bare.key = "";
  CHECK_THAT(Why(Probe(listener, bare, false)),
             Contains("asks for a certificate, and this side shows none: give --cluster-tls"));
  ClientTls refused = member;
  const Issued foreign = Member(other, "stranger");
  refused.chain = foreign.certificate;
  refused.key = foreign.key;
  CHECK_THAT(Why(Probe(listener, refused, true)),
             Contains("refuses this side's certificate, which is of stranger, signed by Tessera "
                      "cluster other"));
}

TEST_CASE("a port that is no coordinator's of the cluster is not taken for one") {
  const GrpcListener worker(Member(Authority(), "box2"), Authority().certificate);
  const ClientTls member = Of(Authority(), Member(Authority(), "box"));
  CHECK_THAT(Why(Probe(worker, member, true)),
             Contains("is of box2, which is no coordinator's") && Contains("--coordinator"));
}

TEST_CASE("a plain port, and one of --tls-cert, ask for another flag") {
  const ClientTls member = Of(Authority(), Member(Authority(), "box"));
  const GrpcListener plain;
  CHECK(Probe(plain, {}, false).ok());
  CHECK_THAT(Why(Probe(plain, member, true)),
             Contains("speaks plain gRPC, and this side has --cluster-tls"));

  const Issued public_authority = IssueAuthority("Public");
  const GrpcListener listener(Issue(public_authority));
  CHECK_THAT(Why(Probe(listener, {}, false)), Contains("give --tls-ca"));
  CHECK_THAT(Why(Probe(listener, member, true)),
             Contains("give --tls-ca with the authority that signed it"));
  const ClientTls client = {.authorities = public_authority.certificate};
  CHECK(Probe(listener, client, false).ok());
  CHECK_THAT(Why(Probe(listener, {.authorities = Authority().certificate}, false)),
             Contains("--tls-ca does not hold the authority") && Contains("signed by Public"));
  CHECK_THAT(
      Why(Probe(listener,
                {.authorities = public_authority.certificate, .server_name = "llm.example"},
                false)),
      Contains("for localhost, 127.0.0.1, not for llm.example") && Contains("--tls-server-name"));
}

TEST_CASE("a port that takes members beside clients takes both, whatever certificate these have") {
  tests::TemporaryFolder folder;
  const Issued coordinator = Member(Authority(), "coordinator", true);
  folder.Write("own.pem", coordinator.key + coordinator.certificate + Authority().certificate);
  const auto members = WatchClusterTls((folder.path() / "own.pem").string());
  REQUIRE(members.ok());
  const Issued public_authority = IssueAuthority("Public");
  const GrpcListener listener(Issue(public_authority), "", members->get());
  ClientTls client = {.authorities = public_authority.certificate};
  CHECK(Probe(listener, client, false).ok());
  const Issued member = Member(Authority(), "box");
  client.chain = member.certificate;
  client.key = member.key;
  CHECK(Probe(listener, client, false).ok());
  const Issued stranger = Member(IssueAuthority("Tessera cluster other"), "box");
  client.chain = stranger.certificate;
  client.key = stranger.key;
  CHECK(Probe(listener, client, false).ok());
}

TEST_CASE("where nothing answers there is nothing to say about TLS") {
  std::string address;
  {
    const GrpcListener gone;
    address = gone.address();
  }
  CHECK(absl::IsUnavailable(ProbeTls({.address = address})));
}

}  // namespace tessera
