#include "tls/grpc_credentials.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "tests/temporary_folder.h"
#include "tests/tls/issued.h"

namespace tessera {
namespace {

using tests::Issue;
using tests::IssueAuthority;
using tests::Issued;
using tests::ForLocalhost;
using tests::IssueOptions;

const Issued& Authority() {
  static const auto& authority = *new Issued(IssueAuthority());
  return authority;
}

// A listener of gRPC with such certificates, which are read again often.
class Listener {
 public:
  explicit Listener(const Issued& issued, const std::string& client_ca = "") {
    Renew(issued);
    if (!client_ca.empty()) folder_.Write("ca.pem", client_ca);
    watch_ =
        std::move(CertificateWatch::Start(
                      {.certificate = (folder_.path() / "cert.pem").string(),
                       .key = (folder_.path() / "key.pem").string(),
                       .client_ca = client_ca.empty() ? "" : (folder_.path() / "ca.pem").string()},
                      std::chrono::milliseconds(20))
                      .value());
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", ServerTls(*watch_).value(), &port_);
    builder.RegisterAsyncGenericService(&generic_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
  }
  ~Listener() {
    server_->Shutdown(std::chrono::system_clock::now());
    queue_->Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) continue;
  }

  void Renew(const Issued& issued) const {
    folder_.Write("cert.pem", issued.certificate);
    folder_.Write("key.pem", issued.key);
  }

  // Whether a new connection is made within `seconds`.
  bool Takes(const ClientTls& client, double seconds = 30, const std::string& host = "127.0.0.1") {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
    const auto credentials = ChannelTls(client, &arguments);
    const auto channel =
        grpc::CreateCustomChannel(host + ":" + std::to_string(port_), credentials, arguments);
    return channel->WaitForConnected(std::chrono::system_clock::now() +
                                     std::chrono::milliseconds(static_cast<int>(1e3 * seconds)));
  }

 private:
  tests::TemporaryFolder folder_;
  std::unique_ptr<CertificateWatch> watch_;
  grpc::AsyncGenericService generic_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

constexpr double kRefusedSeconds = 1;  // in which no connection comes

}  // namespace

TEST_CASE("a channel is made where the authority and the name are right, and only there") {
  Listener listener(Issue(Authority()));
  CHECK(listener.Takes({.authorities = Authority().certificate}));
  CHECK(listener.Takes({.authorities = Authority().certificate}, 30, "localhost"));
  CHECK_FALSE(listener.Takes({.authorities = IssueAuthority().certificate}, kRefusedSeconds));
  CHECK_FALSE(listener.Takes({.authorities = ""}, kRefusedSeconds));
}

TEST_CASE("a certificate for another name is taken where --tls-server-name says so") {
  IssueOptions other = ForLocalhost();
  other.names = {"llm.example.com"};
  other.addresses = {};
  const Issued issued = Issue(Authority(), other);
  Listener listener(issued);
  CHECK_FALSE(listener.Takes({.authorities = Authority().certificate}, kRefusedSeconds));
  CHECK(listener.Takes({.authorities = Authority().certificate, .server_name = "llm.example.com"}));
  // As programs of the same deployment know it, which have no authority's certificate.
  CHECK(listener.Takes({.authorities = issued.certificate, .server_name = "llm.example.com"}));
}

TEST_CASE("with --tls-client-ca a channel needs a certificate of that authority") {
  const Issued clients = IssueAuthority("clients");
  Listener listener(Issue(Authority()), clients.certificate);
  const Issued known = Issue(clients), stranger = Issue(Authority());
  CHECK(listener.Takes(
      {.authorities = Authority().certificate, .chain = known.certificate, .key = known.key}));
  CHECK_FALSE(listener.Takes(
      {.authorities = Authority().certificate, .chain = stranger.certificate, .key = stranger.key},
      kRefusedSeconds));
}

TEST_CASE("a new certificate is shown to connections that begin later") {
  Listener listener(Issue(Authority()));
  const Issued next = IssueAuthority("next");
  const ClientTls trusts_next = {.authorities = next.certificate};
  CHECK_FALSE(listener.Takes(trusts_next, kRefusedSeconds));
  listener.Renew(Issue(next));
  CHECK(listener.Takes(trusts_next));
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
