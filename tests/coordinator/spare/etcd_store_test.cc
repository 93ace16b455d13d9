// What is said to etcd and understood of it, over a gateway of ours on a real socket.
#include "coordinator/spare/etcd_store.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "tests/coordinator/spare/fake_etcd.h"
#include "tests/temporary_folder.h"
#include "tests/tls/issued.h"

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;

constexpr double kPatienceSeconds = 20;

std::unique_ptr<LeaderStore> StoreAt(const std::string& url,
                                     double patience_seconds = kPatienceSeconds) {
  auto store = MakeEtcdStore(ParseEtcdUrl(url).value(), patience_seconds);
  REQUIRE(store.status().message() == "");
  return *std::move(store);
}

std::string Refusal(const std::string& url) {
  const auto place = ParseEtcdUrl(url);
  REQUIRE(place.ok());
  return std::string(MakeEtcdStore(*place, kPatienceSeconds).status().message());
}

}  // namespace

TEST_CASE("URLs of etcd") {
  const auto place = ParseEtcdUrl("etcd://10.0.0.5,[::1]:2380/chat");
  REQUIRE(place.ok());
  CHECK(place->cluster == "chat");
  CHECK_FALSE(place->encrypted);
  REQUIRE(place->members.size() == 2);
  CHECK((place->members[0].host == "10.0.0.5" && place->members[0].port == "2379"));
  CHECK((place->members[1].host == "::1" && place->members[1].port == "2380"));
  CHECK(ParseEtcdUrl("etcd://e")->cluster == "default");
  CHECK(ParseEtcdUrl("etcd://e?login=a")->login_file == "a");
  const auto encrypted = ParseEtcdUrl("etcds://e/chat?ca=a&cert=b&key=c&name=d&login=f");
  REQUIRE(encrypted.ok());
  CHECK(encrypted->encrypted);
  CHECK((encrypted->cluster == "chat" && encrypted->login_file == "f"));
  CHECK((encrypted->files.ca == "a" && encrypted->files.certificate == "b"));
  CHECK((encrypted->files.key == "c" && encrypted->files.server_name == "d"));
  CHECK(ParseEtcdUrl("etcds://e")->files.ca == "system");
  for (const char* bad : {"http://e", "etcd://", "etcd://e,", "etcd://e:port", "etcd://e/a/b",
                          "etcd://e/", "etcd://user@e", "etcd://e?ca=a", "etcds://e?",
                          "etcds://e?ca", "etcds://e?ca=", "etcds://e?password=a"}) {
    INFO(bad);
    CHECK_THAT(std::string(ParseEtcdUrl(bad).status().message()),
               Contains("etcd://HOST:PORT[,HOST:PORT][/CLUSTER] is expected"));
  }
}

TEST_CASE("leases, keys, and writes while somebody leads") {
  FakeEtcd etcd;
  const auto store = StoreAt("etcd://" + etcd.address());
  const Lease lease = store->Grant(4.2).value();
  CHECK(lease.seconds == 5);
  const uint64_t created = store->Create("/t/leader", "a", lease.id).value();
  CHECK(created > 0);
  CHECK(store->Create("/t/leader", "b", lease.id).value() == 0);
  CHECK(store->Renew(lease.id).value());
  CHECK(store->WriteWhile("/t/leader", created, "/t/kept/x", std::string("\0\xff", 2)).value());
  CHECK_FALSE(store->WriteWhile("/t/leader", created + 9, "/t/kept/y", "y").value());
  const auto found = store->Read("/t/").value();
  REQUIRE(found.size() == 2);
  CHECK(store->revision() > created);
  CHECK((found.at("/t/leader").value == "a" && found.at("/t/leader").created == created));
  CHECK(found.at("/t/leader").lease == lease.id);
  CHECK(found.at("/t/kept/x").value == std::string("\0\xff", 2));
  CHECK(store->WriteWhile("/t/leader", created, "/t/kept/x", std::nullopt).value());
  CHECK(store->Revoke(lease.id).ok());
  CHECK_FALSE(store->Renew(lease.id).value());
  const uint64_t revision = store->revision();
  etcd.store.Forget();
  CHECK(store->Read("/t/").value().empty());
  CHECK(store->revision() < revision);
}

TEST_CASE("a member that is silent is left for the next one, and what none answers has an end") {
  FakeEtcd silent, good;
  silent.silent = true;
  const auto store = StoreAt("etcd://" + silent.address() + "," + good.address(), 0.2);
  CHECK(store->Grant(5).ok());
  good.silent = true;
  const absl::Status nobody = store->Grant(5).status();
  CHECK(absl::IsUnavailable(nobody));
  CHECK_THAT(std::string(nobody.message()), Contains("no answer in 200 ms"));
  good.silent = false;
  CHECK(store->Grant(5).ok());
}

TEST_CASE("a member that is down, and one of a name that nobody knows, are named") {
  FakeEtcd etcd;
  etcd.store.down = true;
  const auto store = StoreAt("etcd://" + etcd.address());
  CHECK_THAT(std::string(store->Grant(5).status().message()),
             Contains("etcd at " + etcd.address() + ": status 503") && Contains("no leader"));
  const auto unknown = StoreAt("etcd://no-such-host.invalid:2379", 2);
  CHECK_THAT(std::string(unknown->Grant(5).status().message()),
             Contains("etcd at no-such-host.invalid:2379: no "));
}

TEST_CASE("a login is used, and again where its session has ended") {
  tests::TemporaryFolder folder;
  folder.Write("login", "tessera:a pass:word\n");
  folder.Write("wrong", "tessera:b");
  folder.Write("bare", "tessera");
  const auto login = [&](const std::string& file) {
    return "?login=" + (folder.path() / file).string();
  };
  FakeEtcd etcd("tessera:a pass:word");
  const auto store = StoreAt("etcd://" + etcd.address() + login("login"));
  CHECK(store->Grant(5).ok());
  CHECK(store->Read("/t/").ok());
  CHECK(etcd.logins == 1);
  etcd.EndSessions();
  CHECK(store->Grant(5).ok());
  CHECK(etcd.logins == 2);
  etcd.EndSessions(FakeEtcd::Ended::kOlderUsers);
  CHECK(store->Grant(5).ok());
  etcd.EndSessions(FakeEtcd::Ended::kNoName);
  CHECK(store->Grant(5).ok());
  CHECK(etcd.logins == 4);
  const auto wrong = StoreAt("etcd://" + etcd.address() + login("wrong"));
  CHECK_THAT(std::string(wrong->Grant(5).status().message()), Contains("authentication failed"));
  const auto none = StoreAt("etcd://" + etcd.address());
  CHECK_THAT(std::string(none->Grant(5).status().message()),
             Contains("user name is empty: --ha takes ?login=FILE"));
  CHECK_THAT(Refusal("etcd://e" + login("bare")), Contains("USER:PASSWORD is expected"));
  CHECK_THAT(Refusal("etcd://e" + login("none")),
             Contains("--ha login=") && Contains("no such file"));
}

TEST_CASE("files of TLS that cannot be used are named by their places in --ha") {
  tests::TemporaryFolder folder;
  const std::string ca = (folder.path() / "ca.pem").string(),
                    none = (folder.path() / "none").string();
  folder.Write("ca.pem", tests::IssueAuthority().certificate);
  CHECK_THAT(Refusal("etcds://e?ca=" + none), Contains("--ha ca=" + none + ": no such file"));
  CHECK_THAT(Refusal("etcds://e?ca=" + ca + "&cert=" + ca), Contains("belong together"));
  CHECK_THAT(Refusal("etcds://e?ca=" + ca + "&cert=" + none + "&key=" + none),
             Contains("--ha cert=" + none + ": no such file"));
}

TEST_CASE("etcd inside TLS is spoken to by who trusts its authority") {
  tests::TemporaryFolder folder;
  const Issued authority = tests::IssueAuthority(), server = tests::Issue(authority);
  folder.Write("ca.pem", authority.certificate);
  folder.Write("other.pem", tests::IssueAuthority("another").certificate);
  folder.Write("cert.pem", server.certificate);
  folder.Write("key.pem", server.key);
  const auto file = [&](const char* name) { return (folder.path() / name).string(); };
  auto watch = CertificateWatch::Start({.certificate = file("cert.pem"), .key = file("key.pem")});
  REQUIRE(watch.ok());
  FakeEtcd etcd("", watch->get());
  CHECK(StoreAt("etcds://" + etcd.address() + "?ca=" + file("ca.pem"))->Grant(5).ok());
  CHECK_THAT(std::string(StoreAt("etcds://" + etcd.address() + "?ca=" + file("other.pem"))
                             ->Grant(5)
                             .status()
                             .message()),
             Contains("its certificate is refused"));
  CHECK_THAT(std::string(StoreAt("etcds://" + etcd.address() + "?name=b&ca=" + file("ca.pem"))
                             ->Grant(5)
                             .status()
                             .message()),
             Contains("its certificate is refused"));
  CHECK_FALSE(StoreAt("etcd://" + etcd.address())->Grant(5).ok());
  // One that asks for a certificate gets the one that is named.
  auto asking = CertificateWatch::Start(
      {.certificate = file("cert.pem"), .key = file("key.pem"), .client_ca = file("ca.pem")});
  REQUIRE(asking.ok());
  FakeEtcd strict("", asking->get());
  const std::string url = "etcds://" + strict.address() + "?ca=" + file("ca.pem");
  CHECK_FALSE(StoreAt(url)->Grant(5).ok());
  CHECK(StoreAt(url + "&cert=" + file("cert.pem") + "&key=" + file("key.pem"))->Grant(5).ok());
}

}  // namespace tessera::coordinator
