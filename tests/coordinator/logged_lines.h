// What the coordinator logs while a test runs. Thread rule: thread-safe.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "third_party/spdlog/log.h"

namespace tessera::coordinator {

class LineSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  int Count(const std::string& text) {
    std::lock_guard lock(mutex_);
    return static_cast<int>(std::count_if(lines_.begin(), lines_.end(), [&](const auto& line) {
      return line.find(text) != std::string::npos;
    }));
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    lines_.emplace_back(message.payload.data(), message.payload.size());
  }
  void flush_() override {}
  std::vector<std::string> lines_;
};

// What the coordinator's logger says while this lives. Outlives the server.
class LoggedLines {
 public:
  LoggedLines() { Logger("coordinator").sinks().push_back(sink_); }
  ~LoggedLines() { std::erase(Logger("coordinator").sinks(), spdlog::sink_ptr(sink_)); }
  int Count(const std::string& text) const { return sink_->Count(text); }

 private:
  const std::shared_ptr<LineSink> sink_ = std::make_shared<LineSink>();
};

}  // namespace tessera::coordinator
