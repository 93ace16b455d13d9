// Checks of numbers given as flags, with texts that people can read: CLI11's own print the range of
// a double in 300 digits.
// Thread rule: pure functions.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera {

// A number from 0 up.
CLI::Validator NonNegative();
// A number above 0.
CLI::Validator Positive();
// A whole number from `least` up.
CLI::Validator WholeFrom(long long least);
// A number from `least` to `most`, both allowed.
CLI::Validator Between(double least, double most);

}  // namespace tessera
