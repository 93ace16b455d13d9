// issue FOLDER: writes ca.pem, cert.pem and key.pem for end-to-end tests: a certificate for
// localhost and 127.0.0.1, signed by an authority that is new each time.
#include <algorithm>
#include <fstream>
#include <string>

#include "tests/tls/issued.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = std::string(argv[1]) + "/";
  constexpr size_t kMaxName = 64;  // of X.509; the end of a long folder tells it from others
  const std::string name = folder.substr(folder.size() - std::min(folder.size(), kMaxName));
  const tessera::tests::Issued authority = tessera::tests::IssueAuthority(name);
  const tessera::tests::Issued issued = tessera::tests::Issue(authority);
  std::ofstream(folder + "ca.pem") << authority.certificate;
  std::ofstream(folder + "cert.pem") << issued.certificate;
  std::ofstream(folder + "key.pem") << issued.key;
  return 0;
}
