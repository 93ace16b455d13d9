// What becomes of the keys of a config.json that no family has read.
//
// A key that transformers reads for this class (oracle_keys.inc), that no function asked for, and
// that is not at its default, would change the result without being noticed: it is refused by name.
// Keys that change no result (training, generation, other software) are passed over, and keys that
// nobody knows are named to the user. Pure, thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "proto/json_reader.h"

namespace tessera {

// Expects that everything has been read from `config`, which it fails for a key to be refused.
// Returns a sentence that names the keys that nobody knows; "" where there are none.
std::string CheckUnreadKeys(JsonReader& config, std::string_view architecture);

// Fails the config where model_type is of another class of this list: transformers would take that
// one, whatever `architecture` says. Not where one of both is of a model that takes images as well,
// whose text part alone may keep the type.
void CheckModelType(JsonReader& config, std::string_view architecture);

// Whether the list of what transformers reads has the class.
bool HasOracleKeys(std::string_view architecture);

}  // namespace tessera
