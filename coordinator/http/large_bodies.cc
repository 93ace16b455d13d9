#include "coordinator/http/large_bodies.h"

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <utility>

namespace tessera::coordinator {

struct LargeBodies::Thread {
  std::atomic<size_t> waiting = 0;
  boost::asio::thread_pool pool{1};
};

LargeBodies::LargeBodies(LargeBodiesOptions options)
    : options_(options), thread_(std::make_unique<Thread>()) {}

LargeBodies::~LargeBodies() { thread_->pool.join(); }

absl::Status LargeBodies::Read(size_t body_bytes, std::function<void()> read) {
  if (static_cast<int64_t>(body_bytes) < options_.from_bytes) {
    read();
    return absl::OkStatus();
  }
  if (thread_->waiting.fetch_add(1) >= options_.max_waiting) {
    --thread_->waiting;
    return absl::UnavailableError("too many large requests are waiting to be read");
  }
  boost::asio::post(thread_->pool, [this, read = std::move(read)] {
    read();
    --thread_->waiting;
  });
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
