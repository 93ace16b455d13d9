#include "tls/certificates.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

#include "tests/logged_lines.h"
#include "tests/temporary_folder.h"
#include "tests/tls/issued.h"

namespace tessera {
namespace {

using tests::ForLocalhost;
using tests::Issue;
using tests::IssueAuthority;
using tests::Issued;
using tests::IssueOptions;

// A folder with cert.pem, key.pem and ca.pem.
class Files {
 public:
  explicit Files(const Issued& issued, const std::string& client_ca = "") {
    Write("cert.pem", issued.certificate);
    Write("key.pem", issued.key);
    Write("ca.pem", client_ca);
  }
  // As a whole, like those who renew certificates do.
  void Write(const std::string& name, const std::string& text) {
    folder_.Write(name + ".new", text);
    std::filesystem::rename(folder_.path() / (name + ".new"), folder_.path() / name);
  }
  CertificateFiles names(bool ask = false) const {
    return {.certificate = (folder_.path() / "cert.pem").string(),
            .key = (folder_.path() / "key.pem").string(),
            .client_ca = ask ? (folder_.path() / "ca.pem").string() : ""};
  }

 private:
  tests::TemporaryFolder folder_;
};

std::string WhyRefused(const CertificateFiles& files) {
  return std::string(ReadCertificates(files).status().message());
}

const Issued& Authority() {
  static const auto& authority = *new Issued(IssueAuthority());
  return authority;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("certificates that hold are read with their names and their end") {
  IssueOptions options = ForLocalhost();
  options.names = {"llm.example.com", "localhost"};
  options.addresses = {"127.0.0.1", "::1"};
  const Files files(Issue(Authority(), options), Authority().certificate);
  const auto read = ReadCertificates(files.names(/*ask=*/true));
  REQUIRE(read.ok());
  CHECK(read->names ==
        std::vector<std::string>{"llm.example.com", "localhost", "127.0.0.1", "::1"});
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  CHECK(read->expires_unix_seconds > now + 86000);
  CHECK(read->expires_unix_seconds < now + 86500);
  CHECK(Contains(read->client_ca, "BEGIN CERTIFICATE"));
}

TEST_CASE("the end of a chain is that of its certificate that ends first") {
  IssueOptions soon = ForLocalhost();
  soon.ends_in_seconds = 600;
  const Issued leaf = Issue(Authority());
  const Files files({leaf.certificate + Issue(Authority(), soon).certificate, leaf.key});
  const auto read = ReadCertificates(files.names());
  REQUIRE(read.ok());
  CHECK(read->expires_unix_seconds < std::time(nullptr) + 700);
}

TEST_CASE("each thing that keeps certificates from holding is said with its flag") {
  const Issued good = Issue(Authority());
  Files files(good, "nothing");
  CHECK(Contains(WhyRefused(files.names(/*ask=*/true)), "--tls-client-ca"));
  CHECK(Contains(WhyRefused(files.names(/*ask=*/true)), "holds no certificate"));

  CertificateFiles missing = files.names();
  missing.key += ".gone";
  CHECK(Contains(WhyRefused(missing), "--tls-key"));
  CHECK(Contains(WhyRefused(missing), "no such file"));

  files.Write("key.pem", Issue(Authority()).key);
  CHECK(Contains(WhyRefused(files.names()), "it is not the key of the first certificate"));
  files.Write("key.pem", tests::Encrypted(good.key, "secret"));
  CHECK(Contains(WhyRefused(files.names()), "it has a passphrase"));
  files.Write("key.pem", good.certificate);
  CHECK(Contains(WhyRefused(files.names()), "holds no private key"));
  files.Write("cert.pem", good.key);
  files.Write("key.pem", good.key);
  CHECK(Contains(WhyRefused(files.names()), "--tls-cert"));
  CHECK(Contains(WhyRefused(files.names()), "holds no certificate"));

  IssueOptions past = ForLocalhost(), future = past, weak = past;
  past.ends_in_seconds = -60;
  future.begins_in_seconds = 3600;
  weak.rsa_bits = 1024;
  CHECK(Contains(WhyRefused(Files(Issue(Authority(), past)).names()), "it expired on"));
  CHECK(Contains(WhyRefused(Files(Issue(Authority(), future)).names()), "it holds from"));
  CHECK(Contains(WhyRefused(Files(Issue(Authority(), weak)).names()), "2048 bits"));
}

TEST_CASE("an end that is near is logged with what to do, at the start and after a change") {
  constexpr int64_t kDay = 86400;
  IssueOptions options = ForLocalhost();
  const auto lasting = [&](int64_t days) {
    options.ends_in_seconds = days * kDay + kDay / 2;
    return Issue(Authority(), options);
  };
  Files files(lasting(12));
  const Certificates read = ReadCertificates(files.names()).value();
  const int64_t now = read.expires_unix_seconds - 12 * kDay - kDay / 2;
  CHECK(Contains(ExpiryWarning(files.names(), read, now),
                 "--tls-cert " + files.names().certificate + " ends in 12 days, on 20"));
  CHECK(Contains(ExpiryWarning(files.names(), read, now + 13 * kDay), " ended on 20"));
  CHECK(ExpiryWarning(files.names(), read, now - 20 * kDay).empty());
  CertificateFiles of_cluster = files.names();
  of_cluster.flag = "--cluster-tls";
  CHECK(Contains(ExpiryWarning(of_cluster, read, now), "--cluster-tls "));
  CHECK(Contains(ExpiryWarning(of_cluster, read, now), "tessera token create"));

  tests::LoggedLines log("tls");
  auto started = CertificateWatch::Start(files.names(), std::chrono::milliseconds(5));
  REQUIRE(started.ok());
  while (log.Count(" ends in 12 days") == 0) std::this_thread::yield();
  const Issued longer = lasting(40), shorter = lasting(3);
  const auto renew = [&](const Issued& issued) {
    files.Write("key.pem", issued.key);
    files.Write("cert.pem", issued.certificate);
    while ((*started)->now()->chain != issued.certificate) std::this_thread::yield();
  };
  renew(longer);
  renew(shorter);
  while (log.Count(" ends in 3 days") == 0) std::this_thread::yield();
  CHECK(log.Count(" ends in 12 days") == 1);
  CHECK(log.Count(" ends in ") == 2);
}

TEST_CASE("new certificates come in force while the program runs, and broken ones do not") {
  const Issued first = Issue(Authority()), second = Issue(Authority());
  Files files(first);
  auto started = CertificateWatch::Start(files.names(), std::chrono::milliseconds(5));
  REQUIRE(started.ok());
  CertificateWatch& watch = **started;
  std::mutex mutex;
  std::condition_variable came;
  std::vector<std::string> chains;
  watch.OnChange([&](const std::shared_ptr<const Certificates>& now) {
    std::lock_guard lock(mutex);
    chains.push_back(now->chain);
    came.notify_all();
  });
  CHECK(watch.now()->chain == first.certificate);

  files.Write("cert.pem", "-----BEGIN CERTIFICATE-----\nhalf of it");
  while (watch.refused() == 0) std::this_thread::yield();
  CHECK(watch.now()->chain == first.certificate);

  files.Write("key.pem", second.key);
  files.Write("cert.pem", second.certificate);
  std::unique_lock lock(mutex);
  REQUIRE(came.wait_for(lock, std::chrono::seconds(30), [&] { return !chains.empty(); }));
  CHECK(chains.back() == second.certificate);
  CHECK(watch.now()->chain == second.certificate);
}

}  // namespace tessera
