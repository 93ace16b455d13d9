#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/http/http_server.h"
#include "tests/coordinator/http_client.h"
#include "tests/temporary_folder.h"
#include "tests/tls/issued.h"
#include "third_party/openssl/handles.h"
#include "tls/certificates.h"
#include "tls/pem.h"

namespace tessera::coordinator {
namespace {

using tests::Issue;
using tests::IssueAuthority;
using tests::Issued;

const Issued& Authority() {
  static const auto& authority = *new Issued(IssueAuthority());
  return authority;
}

void Echo(std::shared_ptr<HttpExchange> exchange) {
  HttpResponse response;
  response.body =
      exchange->request().method + " " + exchange->request().path + " " + exchange->request().body;
  exchange->Respond(std::move(response));
}

class HttpsServer {
 public:
  explicit HttpsServer(HttpHandler handler, const Issued& issued = Issue(Authority()),
                       const std::string& client_ca = "") {
    Renew(issued);
    folder_.Write("ca.pem", client_ca);
    const std::string folder = folder_.path().string();
    watch_ = std::move(
        CertificateWatch::Start({.certificate = folder + "/cert.pem",
                                 .key = folder + "/key.pem",
                                 .client_ca = client_ca.empty() ? "" : folder + "/ca.pem"},
                                std::chrono::milliseconds(20))
            .value());
    HttpServerOptions options;
    options.certificates = watch_.get();
    server_ = std::move(HttpServer::Start(options, std::move(handler)).value());
  }

  void Renew(const Issued& issued) const {
    folder_.Write("cert.pem", issued.certificate);
    folder_.Write("key.pem", issued.key);
  }
  uint16_t port() const { return server_->port(); }
  int64_t connections() const { return server_->connections(); }

 private:
  tests::TemporaryFolder folder_;
  std::unique_ptr<CertificateWatch> watch_;
  std::unique_ptr<HttpServer> server_;
};

struct ClientOptions {
  std::string authority = Authority().certificate;
  int max_version = TLS1_3_VERSION;
  std::string protocols;  // ALPN's wire form
  Issued own;
};

// A session whose handshake is yet to come; the connection that takes it frees it.
SSL* Session(const ClientOptions& options = {}) {
  const SslContextHandle context(SSL_CTX_new(TLS_client_method()));
  // As old clients are: TLS 1.1 needs the lowest security level.
  SSL_CTX_set_security_level(context.get(), 0);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_1_VERSION);
  SSL_CTX_set_max_proto_version(context.get(), options.max_version);
  for (const X509Handle& certificate : PemCertificates(options.authority))
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), certificate.get());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (!options.own.certificate.empty()) {
    SSL_CTX_use_certificate(context.get(), PemCertificates(options.own.certificate)[0].get());
    SSL_CTX_use_PrivateKey(context.get(), PemKey(options.own.key)->get());
  }
  SSL* const session = SSL_new(context.get());
  if (!options.protocols.empty()) {
    SSL_set_alpn_protos(session, reinterpret_cast<const unsigned char*>(options.protocols.data()),
                        static_cast<unsigned>(options.protocols.size()));
  }
  return session;
}

}  // namespace

TEST_CASE("requests inside TLS are answered as plain ones are: in turn, pipelined, and large") {
  HttpsServer server(Echo);
  HttpClient client(server.port(), Session());
  REQUIRE(client.encrypted());
  for (int i = 0; i < 3; ++i) {
    REQUIRE(client.SendRequest("POST", "/a?x=1", "one"));
    CHECK(client.Receive().body == "POST /a one");
  }
  const std::string large(3 << 20, 'x');
  REQUIRE(client.SendRequest("POST", "/large", large));
  CHECK(client.Receive().body == "POST /large " + large);
  REQUIRE(client.Send("GET /b HTTP/1.1\r\nHost: h\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n"));
  CHECK(client.Receive().body == "GET /b ");
  CHECK(client.Receive().body == "GET /c ");
  REQUIRE(client.Send("GET /d HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  CHECK(client.Receive().head.find("Connection: close") != std::string::npos);
  CHECK(client.WaitForClose());  // with TLS's own word for it
}

TEST_CASE("a request that comes while the answer before it is made waits for its turn") {
  std::vector<std::shared_ptr<HttpExchange>> held;
  std::atomic<int> came = 0;
  HttpsServer server([&](std::shared_ptr<HttpExchange> exchange) {
    if (exchange->request().path != "/first") {
      Echo(std::move(exchange));
      return;
    }
    held.push_back(std::move(exchange));
    ++came;
  });
  HttpClient client(server.port(), Session());
  for (int i = 0; i < 3; ++i) {
    REQUIRE(client.SendRequest("GET", "/first", ""));
    while (came == i) std::this_thread::yield();
    // In two records, of which the second may come when the first answer is complete.
    REQUIRE(client.Send("POST /second HTTP/1.1\r\nHost: h\r\nContent-Le"));
    REQUIRE(client.Send("ngth: 3\r\n\r\n"));
    Echo(held.back());
    REQUIRE(client.Send("abc"));
    CHECK(client.Receive().body == "GET /first ");
    CHECK(client.Receive().body == "POST /second abc");
  }
  held.clear();
}

TEST_CASE("a stream inside TLS goes out as it is written, and its owner hears of a client's end") {
  std::shared_ptr<HttpExchange> stream;
  std::atomic<bool> began = false, gone = false;
  HttpsServer server([&](std::shared_ptr<HttpExchange> exchange) {
    exchange->OnGone([&] { gone = true; });
    exchange->BeginStream({});
    exchange->Write("data: one\n\n");
    stream = std::move(exchange);
    began = true;
  });
  auto client = std::make_unique<HttpClient>(server.port(), Session());
  REQUIRE(client->SendRequest("POST", "/stream", "{}"));
  CHECK(client->ReadUntil("data: one"));
  while (!began) std::this_thread::yield();
  stream->Write("data: two\n\n");
  CHECK(client->ReadUntil("data: two"));
  CHECK_FALSE(gone);
  client.reset();
  while (!gone) std::this_thread::yield();
  stream.reset();
  while (server.connections() > 0) std::this_thread::yield();
}

TEST_CASE("a client that speaks plain HTTP, an old TLS or only HTTP/2 is not served") {
  HttpsServer server(Echo);
  HttpClient plain(server.port());
  REQUIRE(plain.SendRequest("GET", "/", ""));
  CHECK(plain.ReadUntil("this port speaks https, not http"));

  CHECK_FALSE(HttpClient(server.port(), Session({.max_version = TLS1_1_VERSION})).encrypted());
  CHECK_FALSE(HttpClient(server.port(), Session({.protocols = "\x02h2"})).encrypted());
  ERR_clear_error();

  HttpClient client(server.port(), Session({.max_version = TLS1_2_VERSION,
                                            .protocols = std::string("\x02h2\x08http/1.1")}));
  REQUIRE(client.encrypted());
  REQUIRE(client.SendRequest("GET", "/served", ""));
  CHECK(client.Receive().body == "GET /served ");
}

TEST_CASE("with an authority for clients, those that it did not sign are not served") {
  const Issued clients = IssueAuthority("clients");
  HttpsServer server(Echo, Issue(Authority()), clients.certificate);
  const auto served = [&](const Issued& own) {
    HttpClient client(server.port(), Session({.own = own}));
    return client.SendRequest("GET", "/", "") && client.Receive().status == 200;
  };
  CHECK(served(Issue(clients)));
  CHECK_FALSE(served(Issue(Authority())));
  CHECK_FALSE(served({}));
  ERR_clear_error();
}

TEST_CASE("a connection keeps its certificate, and the next one gets the new certificate") {
  HttpsServer server(Echo);
  const Issued next = IssueAuthority("next");
  HttpClient before(server.port(), Session());
  REQUIRE(before.SendRequest("GET", "/1", ""));
  CHECK(before.Receive().status == 200);
  server.Renew(Issue(next));
  for (;;) {
    HttpClient client(server.port(), Session({.authority = next.certificate}));
    if (client.encrypted()) break;
    ERR_clear_error();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  REQUIRE(before.SendRequest("GET", "/2", ""));
  CHECK(before.Receive().body == "GET /2 ");
}

}  // namespace tessera::coordinator
