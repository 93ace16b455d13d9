#include "deploy/failure.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "third_party/absl/str_cat.h"

namespace tessera::deploy {
namespace {

// "tessera plan diff"
std::string NameOf(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : StrCat(NameOf(*parent), " ", app.get_name());
}

}  // namespace

int Fail(const absl::Status& status) {
  const std::string message(status.message());
  std::cerr << "tessera: " << message << "\n";
  return absl::IsInvalidArgument(status) && message.starts_with("--") ? kUsageError : 1;
}

int FailUsage(std::string_view reason) {
  std::cerr << "tessera: " << reason << "\n";
  return kUsageError;
}

int FailParse(const CLI::App& app, const CLI::App& asked, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  return FailUsage(StrCat(error.what(), "; see ", NameOf(asked), " --help"));
}

}  // namespace tessera::deploy
