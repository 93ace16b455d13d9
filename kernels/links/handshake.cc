#include "kernels/links/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

constexpr size_t kNonceBytes = 32;
constexpr size_t kMacBytes = 32;
constexpr size_t kMaxReasonBytes = 512;
constexpr int64_t kMaxMessageBytes = kNonceBytes + kMaxIdentityBytes;

struct Hello {
  std::string nonce;
  std::string identity;
};

absl::Span<const std::byte> BytesOf(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// One side's part in a handshake.
class Handshake {
 public:
  Handshake(Link& link, const HandshakeOptions& options, Deadline deadline)
      : link_(link), options_(options), deadline_(deadline) {}

  absl::StatusOr<std::string> AsClient();
  // Waits for one frame of the client and answers it. OK: ask served() whether that was the last.
  absl::Status ServeFrame();
  bool served() const { return served_ == kServerFrames; }
  bool has_hello() const { return served_ > 0; }
  const std::string& peer_identity() const { return peer_.identity; }

 private:
  static constexpr int kServerFrames = 3;  // hello, proof, ready

  absl::Status AnswerProof();
  absl::Status Send(uint16_t type, std::string_view payload) {
    return link_.Send(type, BytesOf(payload), SecondsUntil(deadline_));
  }
  // The payload of the next frame, which must be of `type`; a refusal is the peer's error.
  absl::StatusOr<std::string> Receive(uint16_t type);
  absl::Status SendHello();
  absl::Status ReceiveHello();
  absl::StatusOr<std::string> Mac(std::string_view role, const Hello& client,
                                  const Hello& server) const;
  absl::Status CheckMac(std::string_view received, const absl::StatusOr<std::string>& expected);
  absl::Status CheckPeer() const {
    return options_.verify ? options_.verify(peer_.identity) : absl::OkStatus();
  }
  // Tells the peer why, and returns the reason.
  absl::Status Refuse(const absl::Status& reason);

  Link& link_;
  const HandshakeOptions& options_;
  const Deadline deadline_;
  Hello own_;
  Hello peer_;
  int served_ = 0;  // frames of the client that this side, a server, has answered
};

absl::StatusOr<std::string> Handshake::AsClient() {
  if (absl::Status status = SendHello(); !status.ok()) return status;
  if (absl::Status status = ReceiveHello(); !status.ok()) return status;
  absl::StatusOr<std::string> mac = Mac("client", own_, peer_);
  if (!mac.ok()) return mac;
  if (absl::Status status = Send(kProofFrame, *mac); !status.ok()) return status;
  absl::StatusOr<std::string> answer = Receive(kAcceptFrame);
  if (!answer.ok()) return answer;
  absl::Status status = CheckMac(*answer, Mac("server", own_, peer_));
  if (status.ok()) status = CheckPeer();
  if (!status.ok()) return Refuse(status);
  if (absl::Status sent = Send(kReadyFrame, ""); !sent.ok()) return sent;
  return peer_.identity;
}

absl::Status Handshake::ServeFrame() {
  absl::Status status;
  if (served_ == 0) {
    status = ReceiveHello();
    if (status.ok()) status = SendHello();
  } else if (served_ == 1) {
    status = AnswerProof();
  } else {
    status = Receive(kReadyFrame).status();
  }
  if (status.ok()) ++served_;
  return status;
}

absl::Status Handshake::AnswerProof() {
  absl::StatusOr<std::string> proof = Receive(kProofFrame);
  if (!proof.ok()) return proof.status();
  absl::Status status = CheckMac(*proof, Mac("client", peer_, own_));
  if (status.ok()) status = CheckPeer();
  if (!status.ok()) return Refuse(status);
  absl::StatusOr<std::string> mac = Mac("server", peer_, own_);
  if (!mac.ok()) return mac.status();
  return Send(kAcceptFrame, *mac);
}

// What a peer that proved nothing yet says goes into logs: printable and short.
absl::Status RefusalOf(const std::string& peer, std::string_view payload) {
  const int code = payload.empty() ? 0 : static_cast<unsigned char>(payload.front());
  std::string reason(payload.substr(payload.empty() ? 0 : 1, kMaxReasonBytes));
  for (char& c : reason) c = c >= ' ' && c <= '~' ? c : '?';
  const bool is_code = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(is_code ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      StrCat("link to ", peer, ": refused by it: ", reason));
}

absl::StatusOr<std::string> Handshake::Receive(uint16_t type) {
  std::string payload;
  const absl::StatusOr<uint16_t> received =
      link_.ReceiveAny(kMaxMessageBytes, &payload, SecondsUntil(deadline_));
  if (!received.ok()) return received.status();
  if (*received == kRefusalFrame) return RefusalOf(link_.peer(), payload);
  if (*received == type) return payload;
  return absl::FailedPreconditionError(StrCat("link to ", link_.peer(), ": a frame of type ",
                                              *received, " in the handshake instead of ", type));
}

absl::Status Handshake::SendHello() {
  if (static_cast<int64_t>(options_.identity.size()) > kMaxIdentityBytes) {
    return absl::InvalidArgumentError(
        StrCat("an identity of ", options_.identity.size(), " bytes; at most ", kMaxIdentityBytes));
  }
  own_ = {.nonce = std::string(kNonceBytes, '\0'), .identity = options_.identity};
  if (RAND_bytes(reinterpret_cast<unsigned char*>(own_.nonce.data()), kNonceBytes) != 1) {
    return absl::InternalError("no random numbers for a handshake");
  }
  return Send(kHelloFrame, own_.nonce + own_.identity);
}

absl::Status Handshake::ReceiveHello() {
  absl::StatusOr<std::string> payload = Receive(kHelloFrame);
  if (!payload.ok()) return payload.status();
  if (payload->size() < kNonceBytes) {
    return absl::InvalidArgumentError(StrCat("link to ", link_.peer(), ": a hello of ",
                                             payload->size(), " bytes; at least ", kNonceBytes));
  }
  peer_ = {.nonce = payload->substr(0, kNonceBytes), .identity = payload->substr(kNonceBytes)};
  return absl::OkStatus();
}

absl::StatusOr<std::string> Handshake::Mac(std::string_view role, const Hello& client,
                                           const Hello& server) const {
  // Every part has a fixed length or its length before it.
  std::string text = StrCat("tessera link 1 ", role, "\n");
  for (const Hello* hello : {&client, &server}) {
    text += StrCat(hello->nonce, hello->identity.size(), ":", hello->identity);
  }
  std::string mac(kMacBytes, '\0');
  unsigned int size = 0;
  const unsigned char* const made =
      HMAC(EVP_sha256(), options_.token.data(), static_cast<int>(options_.token.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(mac.data()), &size);
  if (made == nullptr || size != kMacBytes) return absl::InternalError("HMAC-SHA256 failed");
  return mac;
}

absl::Status Handshake::CheckMac(std::string_view received,
                                 const absl::StatusOr<std::string>& expected) {
  if (!expected.ok()) return expected.status();
  if (received.size() == kMacBytes &&
      CRYPTO_memcmp(received.data(), expected->data(), kMacBytes) == 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError("the token differs");
}

absl::Status Handshake::Refuse(const absl::Status& reason) {
  const std::string code(1, static_cast<char>(reason.code()));
  const std::string_view text = StdView(reason.message());
  // The link ends whether or not the peer hears why.
  Send(kRefusalFrame, StrCat(code, text.substr(0, kMaxReasonBytes))).IgnoreError();
  return absl::Status(reason.code(), StrCat("link to ", link_.peer(), ": refused: ", text));
}

absl::StatusOr<std::string> Finish(Link& link, absl::StatusOr<std::string> identity) {
  if (!identity.ok()) link.Shutdown(identity.status());
  return identity;
}

}  // namespace

absl::StatusOr<std::string> HandshakeAsClient(Link& link, const HandshakeOptions& options) {
  const Deadline deadline = DeadlineAfter(options.timeout_seconds);
  return Finish(link, Handshake(link, options, deadline).AsClient());
}

absl::StatusOr<std::string> HandshakeAsServer(Link& link, const HandshakeOptions& options) {
  Handshake handshake(link, options, DeadlineAfter(options.timeout_seconds));
  absl::Status status;
  while (status.ok() && !handshake.served()) status = handshake.ServeFrame();
  if (!status.ok()) return Finish(link, status);
  return handshake.peer_identity();
}

class ServerHandshake::Steps : public Handshake {
 public:
  using Handshake::Handshake;
};

// The deadline has passed, so that no step waits: what is read has come, and what is sent is small
// against a socket's buffer.
ServerHandshake::ServerHandshake(Link& link, const HandshakeOptions& options)
    : link_(link), steps_(std::make_unique<Steps>(link, options, Deadline::min())) {}

ServerHandshake::~ServerHandshake() = default;

std::optional<absl::StatusOr<std::string>> ServerHandshake::Advance() {
  while (link_.HasFrame(kMaxMessageBytes)) {
    absl::Status status = steps_->ServeFrame();
    if (!status.ok()) return Finish(link_, status);
    if (steps_->served()) return steps_->peer_identity();
  }
  return std::nullopt;
}

const std::string* ServerHandshake::claimed_identity() const {
  return steps_->has_hello() ? &steps_->peer_identity() : nullptr;
}

}  // namespace tessera::kernels
