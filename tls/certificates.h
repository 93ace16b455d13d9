// Certificates that a listener of ours shows, and authorities that it asks clients to be signed by:
// read from PEM files, checked before they are used, and read again while the program runs.
//
// Thread rule: ReadCertificates is pure but for reading files. CertificateWatch is thread-safe; its
// own thread looks at the files, and calls `changed`.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

// Paths; messages name them by the flags that give them.
struct CertificateFiles {
  std::string certificate;     // the listener's, then its intermediates: --tls-cert
  std::string key;             // of the first of them, without a passphrase: --tls-key
  std::string client_ca = "";  // --tls-client-ca; empty: clients need no certificate
  std::string flag = "";       // that gives all three, which are one file; empty: each has its own
};

// PEM text, as TLS libraries take it.
struct Certificates {
  std::string chain;
  std::string key;
  std::string client_ca;
  int64_t expires_unix_seconds = 0;  // the first of the chain that does
  std::vector<std::string> names;    // DNS names and addresses of the listener's, as it says them
};

// INVALID_ARGUMENT names the flag, the file, and what is wrong: not readable, no PEM, a key with a
// passphrase or of another certificate, dates that do not hold now, a key too short for OpenSSL's
// security level.
absl::StatusOr<Certificates> ReadCertificates(const CertificateFiles& files);

// What to log where they end within 30 days, with the remedy; else empty.
std::string ExpiryWarning(const CertificateFiles& files, const Certificates& certificates,
                          int64_t now_unix_seconds);

class CertificateWatch {
 public:
  using Changed = std::function<void(std::shared_ptr<const Certificates>)>;

  // Errors of ReadCertificates. Files are compared by content each `interval`, because those that
  // are mounted change by a swapped symbolic link. New ones that do not hold are logged and left,
  // and those that hold stay. An end that is near is logged at the start, after each change, and
  // once a day.
  static absl::StatusOr<std::unique_ptr<CertificateWatch>> Start(
      CertificateFiles files, std::chrono::milliseconds interval = std::chrono::seconds(10));
  ~CertificateWatch();
  CertificateWatch(const CertificateWatch&) = delete;
  CertificateWatch& operator=(const CertificateWatch&) = delete;

  // Those in force; equal pointers are equal certificates.
  std::shared_ptr<const Certificates> now() const;
  // Changes of the files that were left because they do not hold.
  int64_t refused() const;
  // Called after each change from now on; not from two threads at once.
  void OnChange(Changed changed);

 private:
  CertificateWatch(CertificateFiles files, std::shared_ptr<const Certificates> now,
                   std::chrono::milliseconds interval);
  void Run();
  void Look();
  void WarnOfExpiry();

  const CertificateFiles files_;
  const std::chrono::milliseconds interval_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::shared_ptr<const Certificates> now_;
  std::vector<Changed> changed_;
  int64_t refused_ = 0;
  std::string complaint_;  // the last one that was logged
  // Of the watch's thread, once that runs.
  std::shared_ptr<const Certificates> warned_of_;
  std::chrono::steady_clock::time_point warned_at_;
  std::thread thread_;
};

}  // namespace tessera
