#include "tls/client_tls.h"

#include <utility>

#include "proto/file_text.h"
#include "third_party/absl/str_cat.h"
#include "tls/certificates.h"
#include "tls/cluster_tls.h"
#include "tls/pem.h"

namespace tessera {
namespace {

// Where distributions keep the authorities that they trust.
constexpr const char* kSystemCas[] = {"/etc/ssl/certs/ca-certificates.crt",
                                      "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"};

absl::StatusOr<std::string> ReadAuthorities(const std::string& ca) {
  if (ca == "system") {
    for (const char* path : kSystemCas) {
      absl::StatusOr<std::string> text = ReadFileText(path, 16 * kMaxPemBytes);
      if (text.ok()) return text;
    }
    return absl::InvalidArgumentError(
        "--tls-ca system: this machine has no list of authorities (package ca-certificates)");
  }
  absl::StatusOr<std::string> text = ReadFileText(ca, kMaxPemBytes);
  if (!text.ok())
    return absl::InvalidArgumentError(StrCat("--tls-ca ", StdView(text.status().message())));
  if (PemCertificates(*text).empty())
    return absl::InvalidArgumentError(StrCat("--tls-ca ", ca, ": ", kNoCertificate));
  return text;
}

}  // namespace

absl::StatusOr<ClientTls> ReadClientTls(const ClientTlsFiles& files) {
  ClientTls client;
  if (files.certificate.empty() != files.key.empty())
    return absl::InvalidArgumentError("--tls-cert and --tls-key belong together: give both");
  absl::StatusOr<Certificates> member;
  if (!files.cluster.empty()) {
    member = ReadClusterTls(files.cluster);
    if (!member.ok()) return member.status();
    if (files.ca.empty()) {
      return ToClusterMember(
          *member, files.server_name.empty() ? kCoordinatorServerName : files.server_name);
    }
  }
  if (files.ca.empty()) {
    if (files.certificate.empty() && files.server_name.empty()) return client;
    return absl::InvalidArgumentError(
        "--tls-cert and --tls-server-name need --tls-ca: the file with the authority that signed "
        "the coordinator's certificate, or system");
  }
  absl::StatusOr<std::string> authorities = ReadAuthorities(files.ca);
  if (!authorities.ok()) return authorities.status();
  client.authorities = *std::move(authorities);
  client.server_name = files.server_name;
  if (member.ok()) {
    client.chain = member->chain;
    client.key = member->key;
    return client;
  }
  if (files.certificate.empty()) return client;
  absl::StatusOr<Certificates> own =
      ReadCertificates({.certificate = files.certificate, .key = files.key, .client_ca = ""});
  if (!own.ok()) return own.status();
  client.chain = std::move(own->chain);
  client.key = std::move(own->key);
  return client;
}

ClientTls ToClusterMember(const Certificates& own, const std::string& server_name) {
  return {
      .authorities = own.client_ca, .chain = own.chain, .key = own.key, .server_name = server_name};
}

}  // namespace tessera
