// With libedit, which is of BSD's licence.
#include <histedit.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>

#include "tools/model/line_editor.h"

namespace halfbyte::cli {

struct LineEditor::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;
  bool is_interrupted = false;
  std::string discarded;

  static State& of(EditLine* editor) {
    void* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    return *static_cast<State*>(state);
  }
  static char* show_prompt(EditLine* editor) { return of(editor).prompt.data(); }
  static unsigned char interrupt(EditLine* editor, int) {
    State& state = of(editor);
    const LineInfo* line = el_line(editor);
    state.discarded.assign(line->buffer, line->lastchar);
    state.is_interrupted = true;
    return CC_NEWLINE;
  }
};

LineEditor::LineEditor() : state_(std::make_unique<State>()) {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");  // or a line's other characters would be lost
  HistEvent event{};
  state_->history = history_init();
  history(state_->history, &event, H_SETSIZE, 1000);
  history(state_->history, &event, H_SETUNIQUE, 1);
  state_->editor = el_init("halfbyte", stdin, stderr, stderr);
  EditLine* const editor = state_->editor;
  el_set(editor, EL_CLIENTDATA, state_.get());
  el_set(editor, EL_PROMPT, &State::show_prompt);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_HIST, history, state_->history);
  // Ctrl-C is a key here, not a signal, which could not tell what was typed.
  el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
  el_set(editor, EL_ADDFN, "halfbyte-interrupt", "discard the line", &State::interrupt);
  el_set(editor, EL_BIND, "^C", "halfbyte-interrupt", nullptr);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

LineEditor::~LineEditor() {
  el_end(state_->editor);
  history_end(state_->history);
}

Line LineEditor::read(const std::string& prompt) {
  state_->prompt = prompt;
  state_->is_interrupted = false;
  el_resize(state_->editor);
  // libedit does this only after it has shown the prompt, and a Ctrl-C or Ctrl-D typed in between would be lost.
  el_set(state_->editor, EL_PREP_TERM, 1);
  int length = 0;
  const char* text = el_gets(state_->editor, &length);
  if (state_->is_interrupted) {
    std::fputs("^C\n", stderr);
    return {Line::Kind::kInterrupted, state_->discarded};
  }
  if (!text || length <= 0) {
    std::fputs("\n", stderr);
    return {Line::Kind::kEnd, ""};
  }
  std::string line(text, static_cast<std::size_t>(length));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return {Line::Kind::kText, std::move(line)};
}

void LineEditor::remember(const std::string& entry) {
  HistEvent event{};
  history(state_->history, &event, H_ENTER, entry.c_str());
}

}  // namespace halfbyte::cli
