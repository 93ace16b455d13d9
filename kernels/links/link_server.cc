#include "kernels/links/link_server.h"

#include <utility>

#include "kernels/links/link_address.h"
#include "kernels/links/link_socket.h"

namespace tessera::kernels {
namespace {

constexpr double kAcceptSeconds = 1;

}  // namespace

absl::StatusOr<std::unique_ptr<LinkServer>> LinkServer::Start(LinkServerOptions options) {
  std::unique_ptr<LinkServer> server(new LinkServer(std::move(options.on_link)));
  for (const std::string& text : options.listen) {
    const auto address = ParseLinkAddress(text);
    if (!address.ok()) return address.status();
    auto listener = LinkListener::Listen(*address);
    if (!listener.ok()) return listener.status();
    server->acceptors_.push_back(std::make_unique<LinkAcceptor>(
        *std::move(listener), options.handshake, options.on_refused));
  }
  for (const auto& acceptor : server->acceptors_) {
    for (int i = 0; i < options.threads_per_address; ++i) {
      server->threads_.emplace_back(
          [raw = server.get(), to = acceptor.get()] { raw->AcceptLoop(to); });
    }
  }
  return server;
}

std::vector<std::string> LinkServer::addresses() const {
  std::vector<std::string> texts;
  for (const auto& acceptor : acceptors_) texts.push_back(acceptor->address().ToString());
  return texts;
}

void LinkServer::Stop() {
  stopping_ = true;
  for (const auto& acceptor : acceptors_) acceptor->Close();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void LinkServer::AcceptLoop(LinkAcceptor* acceptor) {
  while (!stopping_) {
    auto accepted = acceptor->Accept(kAcceptSeconds);
    if (accepted.ok() && !stopping_) on_link_(*std::move(accepted));
  }
}

}  // namespace tessera::kernels
