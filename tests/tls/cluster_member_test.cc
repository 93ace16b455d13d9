#include "tls/cluster_member.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"
#include "tests/tls/issued.h"
#include "tls/client_tls.h"
#include "tls/cluster_tls.h"

namespace tessera {
namespace {

using Catch::Contains;
using tests::ForLocalhost;
using tests::Issue;
using tests::IssueAuthority;
using tests::Issued;
using tests::IssueOptions;

Issued Make(const Issued& authority, const std::string& common_name,
            std::vector<std::string> names = {kWorkerServerName}) {
  IssueOptions options = ForLocalhost();
  options.common_name = common_name;
  options.names = std::move(names);
  return Issue(authority, options);
}

Certificates Cluster(const Issued& authority) {
  const Issued own = Make(authority, "coordinator", {kCoordinatorServerName, kWorkerServerName});
  return {.chain = own.certificate,
          .key = own.key,
          .client_ca = own.certificate + authority.certificate};
}

std::string Why(const absl::Status& status) {
  CHECK(absl::IsFailedPrecondition(status));
  return std::string(status.message());
}

}  // namespace

TEST_CASE("a worker has the names of the machine whose certificate it proved to own") {
  const Issued ours = IssueAuthority("ours");
  const Certificates cluster = Cluster(ours);
  const Issued box = Make(ours, "box");
  CHECK(CheckClusterMember(box.certificate, cluster, "box/0").ok());
  CHECK(CheckClusterMember(box.certificate, cluster, "box/1").ok());
  CHECK(CheckClusterMember(box.certificate, cluster, "box").ok());
  for (const char* wrong : {"box2/0", "bo/0", "tessera-worker/0", "x/box"}) {
    CHECK_THAT(Why(CheckClusterMember(box.certificate, cluster, wrong)),
               Contains("the certificate of machine box: start it as --name box/0") &&
                   Contains("--cluster-tls"));
  }
  // Names of DNS count as well, with their domain or without.
  const Issued named = Make(ours, "gpu machine", {kWorkerServerName, "gpu1.example.com", "gpu2"});
  CHECK(CheckClusterMember(named.certificate, cluster, "gpu1/0").ok());
  CHECK(CheckClusterMember(named.certificate, cluster, "gpu2/0").ok());
  CHECK_FALSE(CheckClusterMember(named.certificate, cluster, "gpu/0").ok());
}

TEST_CASE("certificates of the coordinator and of a pool go with any name") {
  const Issued ours = IssueAuthority("ours");
  const Certificates cluster = Cluster(ours);
  CHECK(CheckClusterMember(cluster.chain, cluster, "any/0").ok());
  const Issued pool = Make(ours, "pods", {kWorkerServerName, kAnyWorkerServerName});
  CHECK(CheckClusterMember(pool.certificate, cluster, "any/0").ok());
}

TEST_CASE("what another authority signed, or nobody showed, is not of the cluster") {
  const Issued ours = IssueAuthority("ours"), other = IssueAuthority("other");
  const Certificates cluster = Cluster(ours);
  const Issued foreign = Make(other, "box");
  CHECK_THAT(Why(CheckClusterMember(foreign.certificate, cluster, "box/0")),
             Contains("a certificate of box, which other signed") && Contains("--cluster-tls"));
  // The authority that comes with it proves nothing.
  CHECK_FALSE(CheckClusterMember(foreign.certificate + other.certificate, cluster, "box/0").ok());
  // Of the same name as ours, with another key.
  const Issued twin = IssueAuthority("ours");
  CHECK_FALSE(CheckClusterMember(Make(twin, "box").certificate, cluster, "box/0").ok());
  CHECK_THAT(Why(CheckClusterMember("", cluster, "box/0")),
             Contains("shows no certificate of the cluster: give it --cluster-tls"));
}

TEST_CASE("a line break in a certificate's name comes into no log") {
  const Issued other = IssueAuthority("other\nx");
  const std::string why = Why(CheckClusterMember(Make(other, "a\nb").certificate,
                                                 Cluster(IssueAuthority("ours")), "box/0"));
  CHECK_THAT(why, Contains("of a?b, which other?x signed"));
}

TEST_CASE("the authority's own file is no machine's") {
  tests::TemporaryFolder folder;
  const Issued ours = IssueAuthority("ours");
  folder.Write("authority.pem", ours.key + ours.certificate);
  const std::string file = (folder.path() / "authority.pem").string();
  CHECK_THAT(std::string(ReadClusterTls(file).status().message()),
             Contains("--cluster-tls " + file) && Contains("the authority's own file"));
}

TEST_CASE("beside --tls-ca the certificate of --cluster-tls is shown") {
  tests::TemporaryFolder folder;
  const Issued ours = IssueAuthority("ours"), box = Make(ours, "box");
  const Issued public_authority = IssueAuthority("public");
  folder.Write("ca.pem", public_authority.certificate);
  folder.Write("box.pem", box.key + box.certificate + ours.certificate);
  const auto read = ReadClientTls(
      {.ca = (folder.path() / "ca.pem").string(), .cluster = (folder.path() / "box.pem").string()});
  REQUIRE(read.ok());
  CHECK(read->authorities == public_authority.certificate);
  CHECK(CheckClusterMember(read->chain, Cluster(ours), "box/0").ok());
  CHECK(read->server_name.empty());
}

}  // namespace tessera
