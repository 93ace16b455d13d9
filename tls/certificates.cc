#include "tls/certificates.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "proto/api_keys.h"
#include "proto/file_text.h"
#include "third_party/absl/str_cat.h"
#include "third_party/openssl/handles.h"
#include "third_party/spdlog/log.h"
#include "tls/pem.h"

namespace tessera {
namespace {

constexpr char kCertificateFlag[] = "--tls-cert", kKeyFlag[] = "--tls-key",
               kClientCaFlag[] = "--tls-client-ca";

absl::Status Wrong(const std::string& flag, const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(StrCat(flag, " ", path, ": ", what));
}

std::string FlagOf(const CertificateFiles& files, const char* own) {
  return files.flag.empty() ? own : files.flag;
}

std::string LastError() {
  const unsigned long error = ERR_peek_last_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  ERR_clear_error();
  return reason == nullptr ? "it is not understood" : reason;
}

int64_t UnixSeconds(const ASN1_TIME* time) {
  std::tm parts = {};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? static_cast<int64_t>(timegm(&parts)) : 0;
}

std::string Date(int64_t unix_seconds) {
  const std::time_t time = unix_seconds;
  std::tm parts = {};
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", gmtime_r(&time, &parts));
  return text;
}

absl::Status CheckDates(const CertificateFiles& files, const std::vector<X509Handle>& chain,
                        int64_t* expires) {
  const std::string flag = FlagOf(files, kCertificateFlag);
  const int64_t now = std::time(nullptr);
  *expires = INT64_MAX;
  for (const X509Handle& certificate : chain) {
    const int64_t begins = UnixSeconds(X509_get0_notBefore(certificate.get()));
    const int64_t ends = UnixSeconds(X509_get0_notAfter(certificate.get()));
    if (begins > now) {
      return Wrong(flag, files.certificate,
                   StrCat("it holds from ", Date(begins), " on: look at this machine's clock"));
    }
    if (ends <= now) {
      return Wrong(flag, files.certificate, StrCat("it expired on ", Date(ends), ": renew it"));
    }
    *expires = std::min(*expires, ends);
  }
  return absl::OkStatus();
}

// What a listener would find wrong when it takes them.
absl::Status CheckPair(const CertificateFiles& files, X509* certificate, EVP_PKEY* key) {
  if (X509_check_private_key(certificate, key) != 1) {
    ERR_clear_error();
    return Wrong(FlagOf(files, kKeyFlag), files.key,
                 StrCat("it is not the key of the first certificate in ", files.certificate));
  }
  const SslContextHandle context(SSL_CTX_new(TLS_server_method()));
  if (SSL_CTX_use_certificate(context.get(), certificate) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key) != 1) {
    return Wrong(FlagOf(files, kCertificateFlag), files.certificate,
                 StrCat("OpenSSL refuses it (", LastError(),
                        "): keys need at least 2048 bits of RSA, or 224 of an elliptic curve"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Certificates> ReadCertificates(const CertificateFiles& files) {
  Certificates read;
  const std::string certificate_flag = FlagOf(files, kCertificateFlag);
  const std::string key_flag = FlagOf(files, kKeyFlag);
  const struct {
    std::string flag;
    const std::string& path;
    std::string& text;
  } wanted[] = {{certificate_flag, files.certificate, read.chain},
                {key_flag, files.key, read.key},
                {FlagOf(files, kClientCaFlag), files.client_ca, read.client_ca}};
  for (const auto& file : wanted) {
    if (file.path.empty() && &file.path == &files.client_ca) continue;
    absl::StatusOr<std::string> text = ReadFileText(file.path, kMaxPemBytes);
    if (!text.ok()) {
      return absl::InvalidArgumentError(StrCat(file.flag, " ", StdView(text.status().message())));
    }
    file.text = *std::move(text);
  }
  const std::vector<X509Handle> chain = PemCertificates(read.chain);
  if (chain.empty()) return Wrong(certificate_flag, files.certificate, kNoCertificate);
  const absl::StatusOr<KeyHandle> key = PemKey(read.key);
  if (!key.ok()) return Wrong(key_flag, files.key, std::string(key.status().message()));
  if (!files.client_ca.empty() && PemCertificates(read.client_ca).empty())
    return Wrong(kClientCaFlag, files.client_ca, kNoCertificate);
  if (absl::Status s = CheckPair(files, chain.front().get(), key->get()); !s.ok()) return s;
  if (absl::Status s = CheckDates(files, chain, &read.expires_unix_seconds); !s.ok()) return s;
  read.names = OwnerOf(*chain.front()).names;
  return read;
}

std::string ExpiryWarning(const CertificateFiles& files, const Certificates& certificates,
                          int64_t now_unix_seconds) {
  constexpr int64_t kDaySeconds = 86400, kNearDays = 30;
  const int64_t left = certificates.expires_unix_seconds - now_unix_seconds;
  if (left >= kNearDays * kDaySeconds) return "";
  const bool of_cluster = !files.flag.empty();
  return StrCat(
      FlagOf(files, kCertificateFlag), " ", files.certificate,
      left > 0 ? StrCat(" ends in ", left / kDaySeconds, " days, on ") : StrCat(" ended on "),
      Date(certificates.expires_unix_seconds),
      ": renew it; a new file is taken while this program runs",
      of_cluster ? " (`tessera token create` makes one again where the old one was moved away)"
                 : "",
      ". Connections that begin after its end are refused");
}

absl::StatusOr<std::unique_ptr<CertificateWatch>> CertificateWatch::Start(
    CertificateFiles files, std::chrono::milliseconds interval) {
  absl::StatusOr<Certificates> read = ReadCertificates(files);
  if (!read.ok()) return read.status();
  if (const std::string warning = KeyFileWarning(files.key); !warning.empty())
    Logger("tls").warn("{}", warning);
  auto now = std::make_shared<const Certificates>(*std::move(read));
  return std::unique_ptr<CertificateWatch>(
      new CertificateWatch(std::move(files), std::move(now), interval));
}

CertificateWatch::CertificateWatch(CertificateFiles files, std::shared_ptr<const Certificates> now,
                                   std::chrono::milliseconds interval)
    : files_(std::move(files)),
      interval_(interval),
      now_(std::move(now)),
      thread_([this] { Run(); }) {}

void CertificateWatch::WarnOfExpiry() {
  constexpr auto kBetween = std::chrono::hours(24);
  const std::shared_ptr<const Certificates> certificates = now();
  const auto at = std::chrono::steady_clock::now();
  if (certificates == warned_of_ && at < warned_at_ + kBetween) return;
  warned_of_ = certificates;
  warned_at_ = at;
  if (const std::string text = ExpiryWarning(files_, *certificates, std::time(nullptr));
      !text.empty()) {
    Logger("tls").warn("{}", text);
  }
}

CertificateWatch::~CertificateWatch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::shared_ptr<const Certificates> CertificateWatch::now() const {
  std::lock_guard lock(mutex_);
  return now_;
}

int64_t CertificateWatch::refused() const {
  std::lock_guard lock(mutex_);
  return refused_;
}

void CertificateWatch::OnChange(Changed changed) {
  std::lock_guard lock(mutex_);
  changed_.push_back(std::move(changed));
}

void CertificateWatch::Run() {
  WarnOfExpiry();
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, interval_, [this] { return stopping_; })) {
    lock.unlock();
    Look();
    WarnOfExpiry();
    lock.lock();
  }
}

void CertificateWatch::Look() {
  absl::StatusOr<Certificates> read = ReadCertificates(files_);
  std::unique_lock lock(mutex_);
  if (!read.ok()) {
    // A pair whose second file is not yet there looks like this for a moment, too.
    const std::string complaint(read.status().message());
    if (complaint == complaint_) return;
    complaint_ = complaint;
    ++refused_;
    Logger("tls").warn("{}; the certificate of before stays in use, until {}", complaint,
                       Date(now_->expires_unix_seconds));
    return;
  }
  complaint_.clear();
  if (read->chain == now_->chain && read->key == now_->key && read->client_ca == now_->client_ca)
    return;
  now_ = std::make_shared<const Certificates>(*std::move(read));
  Logger("tls").info("{} was read again: it holds until {}", files_.certificate,
                     Date(now_->expires_unix_seconds));
  const std::shared_ptr<const Certificates> now = now_;
  const std::vector<Changed> changed = changed_;
  lock.unlock();
  for (const Changed& call : changed) call(now);
}

}  // namespace tessera
