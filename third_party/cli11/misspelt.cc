#include "third_party/cli11/misspelt.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "third_party/cli11/flag_file.h"

namespace tessera {
namespace {

// Letters inserted, dropped, replaced or swapped with their neighbour (Damerau 1964, restricted).
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const size_t replaced = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::vector<std::string> FlagNames(const Command& command) {
  std::vector<std::string> names;
  for (const Flag& flag : command.flags()) {
    for (const std::string& name : flag.long_names()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> SubcommandNames(const Command& command) {
  std::vector<std::string> names;
  for (const Command& sub : command.subcommands()) names.push_back(sub.name());
  return names;
}

std::string NoSubcommand(const Command& command, const std::string& given) {
  const std::vector<std::string> names = SubcommandNames(command);
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return "\"" + given + "\" is no subcommand" + DidYouMean(given, names) + "; there are: " + list;
}

}  // namespace

std::string DidYouMean(std::string_view given, std::span<const std::string> candidates) {
  std::string best;
  size_t best_distance = std::min<size_t>(3, given.size() / 3 + 1);
  for (const std::string& candidate : candidates) {
    const size_t distance = Distance(given, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best.empty() ? "" : " (did you mean " + best + "?)";
}

std::string UnknownArgument(const Command& program, std::span<const char* const> arguments) {
  Command in = program;
  bool first = false;  // the word after a subcommand
  for (const std::string argument : arguments) {
    if (argument == "--") return "";
    const bool may_be_subcommand = std::exchange(first, false);
    const std::string path = in.full_name();
    if (const std::optional<Command> sub = in.FindSubcommand(argument)) {
      in = *sub;
      first = true;
    } else if (argument.starts_with("--")) {
      const std::string flag = argument.substr(0, argument.find('='));
      const std::vector<std::string> names = FlagNames(in);
      if (std::find(names.begin(), names.end(), flag) != names.end()) continue;
      return flag + " is no flag" + (path.empty() ? "" : " of " + path) + DidYouMean(flag, names) +
             "; see --help";
    } else if (in.requires_subcommand() && !argument.starts_with("-")) {
      return NoSubcommand(in, argument);
    } else if (may_be_subcommand && !argument.starts_with("-")) {
      const std::string meant = DidYouMean(argument, SubcommandNames(in));
      if (!meant.empty() && !std::filesystem::exists(argument))
        return "\"" + argument + "\" is no file, and no subcommand of " + path + meant;
    }
  }
  return "";
}

std::vector<Command> NamedCommands(const Command& program, std::span<const char* const> arguments) {
  std::vector<Command> commands = {program};
  for (const std::string argument : arguments) {
    if (argument == "--") break;
    if (const auto sub = commands.back().FindSubcommand(argument)) commands.push_back(*sub);
  }
  return commands;
}

std::vector<std::string> UnknownVariables(std::span<const Command> commands,
                                          std::span<const std::string_view> other_flags) {
  std::vector<std::string> known;
  for (const Command& command : commands) {
    for (const Flag& flag : command.flags()) {
      if (!flag.variable().empty()) known.push_back(flag.variable());
    }
  }
  for (const std::string_view flag : other_flags) known.push_back(EnvironmentName(flag));
  std::vector<std::string> lines;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with("TESSERA_")) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    lines.push_back("the environment variable " + name + " is no flag's" + DidYouMean(name, known) +
                    " and is ignored");
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace tessera
