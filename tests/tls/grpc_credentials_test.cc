#include "tls/grpc_credentials.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "tests/temporary_folder.h"
#include "tests/tls/grpc_listener.h"
#include "tests/tls/issued.h"
#include "tls/cluster_tls.h"

namespace tessera {
namespace {

using tests::ForLocalhost;
using tests::GrpcListener;
using tests::Issue;
using tests::IssueAuthority;
using tests::Issued;
using tests::IssueOptions;

const Issued& Authority() {
  static const auto& authority = *new Issued(IssueAuthority());
  return authority;
}

// Whether a new connection is made within `seconds`.
bool Takes(const GrpcListener& listener, const ClientTls& client, double seconds = 30,
           const std::string& host = "127.0.0.1") {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  const auto credentials = ChannelTls(client, &arguments);
  const auto channel = grpc::CreateCustomChannel(listener.address(host), credentials, arguments);
  return channel->WaitForConnected(std::chrono::system_clock::now() +
                                   std::chrono::milliseconds(static_cast<int>(1e3 * seconds)));
}

constexpr double kRefusedSeconds = 1;  // in which no connection comes

}  // namespace

TEST_CASE("a channel is made where the authority and the name are right, and only there") {
  const GrpcListener listener(Issue(Authority()));
  CHECK(Takes(listener, {.authorities = Authority().certificate}));
  CHECK(Takes(listener, {.authorities = Authority().certificate}, 30, "localhost"));
  CHECK_FALSE(Takes(listener, {.authorities = IssueAuthority().certificate}, kRefusedSeconds));
  CHECK_FALSE(Takes(listener, {.authorities = ""}, kRefusedSeconds));
}

TEST_CASE("a certificate for another name is taken where --tls-server-name says so") {
  IssueOptions other = ForLocalhost();
  other.names = {"llm.example.com"};
  other.addresses = {};
  const Issued issued = Issue(Authority(), other);
  const GrpcListener listener(issued);
  CHECK_FALSE(Takes(listener, {.authorities = Authority().certificate}, kRefusedSeconds));
  CHECK(
      Takes(listener, {.authorities = Authority().certificate, .server_name = "llm.example.com"}));
  // As programs of the same deployment know it, which have no authority's certificate.
  CHECK(Takes(listener, {.authorities = issued.certificate, .server_name = "llm.example.com"}));
}

TEST_CASE("with --tls-client-ca a channel needs a certificate of that authority") {
  const Issued clients = IssueAuthority("clients");
  const GrpcListener listener(Issue(Authority()), clients.certificate);
  const Issued known = Issue(clients), stranger = Issue(Authority());
  CHECK(Takes(
      listener,
      {.authorities = Authority().certificate, .chain = known.certificate, .key = known.key}));
  CHECK_FALSE(Takes(
      listener,
      {.authorities = Authority().certificate, .chain = stranger.certificate, .key = stranger.key},
      kRefusedSeconds));
}

TEST_CASE("beside members of a cluster come clients with any certificate, and with none") {
  const Issued cluster = IssueAuthority("cluster"), stranger = IssueAuthority("another mesh");
  tests::TemporaryFolder folder;
  const Issued coordinator = Issue(cluster);
  folder.Write("cluster.pem", coordinator.key + coordinator.certificate + cluster.certificate);
  const auto members = WatchClusterTls((folder.path() / "cluster.pem").string()).value();
  const GrpcListener listener(Issue(Authority()), "", members.get());
  CHECK(Takes(listener, {.authorities = Authority().certificate}));
  for (const Issued& shown : {Issue(cluster), Issue(stranger)}) {
    CHECK(Takes(
        listener,
        {.authorities = Authority().certificate, .chain = shown.certificate, .key = shown.key}));
  }
  // Where --tls-client-ca asks, strangers have no way in.
  const Issued clients = IssueAuthority("clients");
  const GrpcListener asking(Issue(Authority()), clients.certificate, members.get());
  for (const Issued& shown : {Issue(cluster), Issue(clients)}) {
    CHECK(Takes(
        asking,
        {.authorities = Authority().certificate, .chain = shown.certificate, .key = shown.key}));
  }
  const Issued foreign = Issue(stranger);
  CHECK_FALSE(Takes(
      asking,
      {.authorities = Authority().certificate, .chain = foreign.certificate, .key = foreign.key},
      kRefusedSeconds));
}

TEST_CASE("a new certificate is shown to connections that begin later") {
  const GrpcListener listener(Issue(Authority()));
  const Issued next = IssueAuthority("next");
  const ClientTls trusts_next = {.authorities = next.certificate};
  CHECK_FALSE(Takes(listener, trusts_next, kRefusedSeconds));
  listener.Renew(Issue(next));
  CHECK(Takes(listener, trusts_next));
}

TEST_CASE("flags of a client that do not hold are refused by name") {
  tests::TemporaryFolder folder;
  folder.Write("ca.pem", Authority().certificate);
  folder.Write("no.pem", "nothing");
  const std::string ca = (folder.path() / "ca.pem").string(),
                    no = (folder.path() / "no.pem").string();
  const auto why = [](const ClientTlsFiles& files) {
    return std::string(ReadClientTls(files).status().message());
  };
  CHECK(ReadClientTls({}).value().authorities.empty());
  CHECK(ReadClientTls({.ca = ca}).value().authorities == Authority().certificate);
  CHECK(why({.ca = no}).find("--tls-ca") == 0);
  CHECK(why({.ca = ca + ".gone"}).find("no such file") != std::string::npos);
  CHECK(why({.server_name = "a"}).find("need --tls-ca") != std::string::npos);
  CHECK(why({.ca = ca, .certificate = ca}).find("belong together") != std::string::npos);
}

}  // namespace tessera
