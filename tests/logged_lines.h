// What a folder's logger says while a test runs. Thread rule: thread-safe.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "third_party/spdlog/log.h"

namespace tessera::tests {

// The lines from its construction on. Outlives the threads that log.
class LoggedLines final : public LogObserver {
 public:
  explicit LoggedLines(std::string_view folder) : log_(Logger(folder)) { log_.AddObserver(this); }
  ~LoggedLines() override { log_.RemoveObserver(this); }
  LoggedLines(const LoggedLines&) = delete;
  LoggedLines& operator=(const LoggedLines&) = delete;

  std::vector<std::string> All() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  // How many lines contain `text`.
  int Count(const std::string& text) const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::count_if(lines_.begin(), lines_.end(), [&](const auto& line) {
      return line.find(text) != std::string::npos;
    }));
  }

 private:
  void OnLine(std::string_view message) override {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(message);
  }

  FolderLog& log_;
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace tessera::tests
