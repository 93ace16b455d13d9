#pragma once

// Logging of a process: one logger per folder ("worker", "kvcache", ...), one sink on stderr.
//
//   tessera::Logger("worker").info("{} tokens in step {}", tokens, step);
//
// main calls SetUpLogging once, from --log-level and --log-format; before that, text at level info.
// Include this from .cc files only: it brings in spdlog. Thread-safe.

#include <spdlog/logger.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tessera {

// `level` is trace, debug, info, warning, error or off. `format` is text (one line for people) or
// json (one object per line: time, level, logger, message). InvalidArgument names what was not
// understood; nothing is changed then. Also holds for loggers that exist already.
absl::Status SetUpLogging(std::string_view level, std::string_view format);

// The logger of a folder, made at first use; it lives until the process ends. Looking one up takes
// a lock: keep the reference where it is used often.
spdlog::logger& Logger(std::string_view folder);

// What --log-format json prints for one message, without the line end; here for its test.
// `message` may hold any bytes: invalid UTF-8 becomes U+FFFD.
std::string JsonLogLine(std::string_view time, std::string_view level, std::string_view logger,
                        std::string_view message);

}  // namespace tessera
