#include <grpc/support/log.h>

#include <catch2/catch.hpp>
#include <string>

#include "tests/logged_lines.h"
#include "third_party/grpc/log_lines.h"

namespace tessera {

using Catch::Contains;

// As gRPC 1.51 says them.
TEST_CASE("a refused handshake is said with who came, where gRPC knows it, and the flag") {
  CHECK_THAT(RefusedHandshake("Handshaking failed: UNKNOWN:Tls handshake failed: SSL_ERROR_SSL: "
                              "error:0A0000C7:SSL routines::peer did not return a certificate "
                              "{tsi_code:10, tsi_error:\"TSI_PROTOCOL_FAILURE\"}"),
             Contains("shows no certificate") && Contains("--cluster-tls"));
  CHECK_THAT(RefusedHandshake("Handshaking failed: UNKNOWN:Tls handshake failed: SSL_ERROR_SSL: "
                              "error:0A00010B:SSL routines::wrong version number {tsi_code:10}"),
             Contains("speaks no TLS") && Contains("--cluster-tls") && Contains("--tls-ca"));
  CHECK_THAT(RefusedHandshake("Handshaking failed: UNKNOWN:Tls handshake failed: SSL_ERROR_SSL: "
                              "error:0A000086:SSL routines::certificate verify failed {x:1}"),
             Contains("an authority that the other does not know") && Contains("--cluster-tls"));
  CHECK_THAT(
      RefusedHandshake(
          "Handshaking failed: UNKNOWN:Handshake read failed {file_line:487, "
          "children:[INTERNAL:Socket closed {target_address:\"ipv4:10.0.0.7:51242\", fd:8}]}"),
      Contains("from 10.0.0.7 ended") && Contains("a probe of the port") &&
          Contains("--cluster-tls"));
  CHECK_THAT(RefusedHandshake("Handshaking failed: UNKNOWN:Tls handshake failed: SSL_ERROR_SSL: "
                              "error:0A000102:SSL routines::unsupported protocol {x:1}"),
             Contains("SSL routines::unsupported protocol") && !Contains("{x:1}"));
  CHECK(RefusedHandshake("Using polling engine: epoll1").empty());
}

TEST_CASE(
    "gRPC's lines come into the log, each once in a while, and those about handshakes in words") {
  tests::LoggedLines log("grpc");
  TakeGrpcLines();
  for (int i = 0; i < 3; ++i) {
    gpr_log("a.cc", 1, GPR_LOG_SEVERITY_ERROR, "bad thing %d", 7);
    gpr_log("src/ssl_transport_security.cc", 1, GPR_LOG_SEVERITY_ERROR, "Handshake failed");
    gpr_log("b.cc", 1, GPR_LOG_SEVERITY_DEBUG,
            "Handshaking failed: x wrong version number {tsi_code:10}");
    gpr_log("b.cc", 1, GPR_LOG_SEVERITY_INFO, "chatter");
  }
  CHECK(log.Count("bad thing 7") == 1);
  CHECK(log.Count("Handshake failed") == 0);
  CHECK(log.Count("speaks no TLS") == 1);
  CHECK(log.Count("chatter") == 0);
}

}  // namespace tessera
