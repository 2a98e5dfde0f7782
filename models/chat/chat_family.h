// The table of chat templates: one row a family, written out, so that no checkpoint's template is ever run.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

namespace halfbyte::models {

// What stands around the text of a turn. Text is trimmed as Python's str.strip() does it.
struct Turn {
  std::string_view before = {};
  std::string_view after = {};
  bool is_trimmed = false;
};

// How tools are offered, called and answered. The list of tools is JSON behind `intro`, in the system's turn; a call is
// a turn with its arguments as Python writes them: before_name NAME before_arguments key=value, ... behind_arguments.
struct ToolTurns {
  std::string_view intro;
  std::string_view before_name, before_arguments, behind_arguments;
  Turn result;
};

enum class SystemPlace { kTurn, kFirstUser, kLastUser };  // a turn of its own, or in front of a user's text

template <std::size_t kSize>
using Words = std::array<std::string_view, kSize>;  // the first empty one ends it

// Template strings may have {bos}, {eos}, {date} and {round} (user turns so far, from 1) in them.
struct ChatFamily {
  std::string_view name;
  Words<10> controls;  // special tokens in the strings below, besides {bos} and {eos}
  Words<4> stops;      // tokens that end an answer, besides {eos}
  std::string_view bos;
  std::string_view eos;
  std::string_view start;
  Turn system;
  Turn user;
  Turn assistant;
  std::string_view answer;               // what the model's next answer follows
  std::string_view answer_in_some = {};  // the same, of those of the family's templates in which it stands
  SystemPlace system_place = SystemPlace::kTurn;
  std::optional<std::string_view> default_system = {};  // where a conversation has no system text
  bool drops_thinking = false;                          // of earlier answers: up to </think>
  bool begins_with_line = false;                        // answers begin with a line break that is no part of them
  std::optional<ToolTurns> tools = {};                  // nothing: its rows know texts alone

  // Recognition by a chat_template's text: all of `marks` stand in it and none of `no_marks`.
  Words<4> marks = {};
  Words<4> no_marks = {};
  // Without such a text: by config.json's model_type ("*": any) and what the tokenizer has and lacks.
  Words<5> model_types = {};
  Words<2> tokens = {};
  Words<1> no_tokens = {};
};

// In the order in which they are recognised.
std::span<const ChatFamily> chat_families() noexcept;

const ChatFamily* find_chat_family(std::string_view name) noexcept;  // null: none is called so

}  // namespace halfbyte::models
