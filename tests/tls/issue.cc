// issue FOLDER: writes ca.pem, cert.pem and key.pem for end-to-end tests: a certificate for
// localhost and 127.0.0.1, signed by an authority that is new each time.
#include <fstream>
#include <string>

#include "tests/tls/issued.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = std::string(argv[1]) + "/";
  const tessera::tests::Issued authority = tessera::tests::IssueAuthority("of " + folder);
  const tessera::tests::Issued issued = tessera::tests::Issue(authority);
  std::ofstream(folder + "ca.pem") << authority.certificate;
  std::ofstream(folder + "cert.pem") << issued.certificate;
  std::ofstream(folder + "key.pem") << issued.key;
  return 0;
}
