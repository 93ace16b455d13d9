// Words that are nearly right: flags, subcommands and environment variables that no program knows.
// Thread rule: pure functions, but for reading the environment.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "third_party/cli11/flags.h"

namespace tessera {

// " (did you mean NAME?)" for the candidate that is at most two letters (a third of a short word)
// away from `given`, a swapped pair counting as one; "" where none is.
std::string DidYouMean(std::string_view given, std::span<const std::string> candidates);

// The first of `arguments` (without the program's name) that looks like a flag ("--...") and is
// none of the subcommand it stands in, or that stands where a subcommand must and is none, or where
// one may and is nearly one, and no file, in words; "" where all are known. Ends at "--".
std::string UnknownArgument(const Command& program, std::span<const char* const> arguments);

// `program`, and the subcommands that `arguments` name, from the outermost in.
std::vector<Command> NamedCommands(const Command& program, std::span<const char* const> arguments);

// One line for each variable TESSERA_... of the environment that is not the variable of a flag of
// `commands` nor of `other_flags` (long names of flags that other programs read).
std::vector<std::string> UnknownVariables(std::span<const Command> commands,
                                          std::span<const std::string_view> other_flags);

}  // namespace tessera
