// The names that a checkpoint gives its model's family, for messages about families that halfbyte does not know.
#pragma once

#include <string>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

// config.json's "model_type", else its "architectures"[0], in quotes. Empty: it names none, or is not there.
std::string family_in_quotes(const Checkpoint& checkpoint);

// Whose family it is, as the subject of a sentence: "the family "mamba2"", "the family of this model".
std::string family_subject(const Checkpoint& checkpoint);

// Whether config.json names code to run ("auto_map"), which halfbyte never does.
bool names_remote_code(const Checkpoint& checkpoint);

}  // namespace halfbyte::files
