// One run of a template: its variables, what it has written, and what it may still spend.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "models/chat/jinja/callable.h"
#include "models/chat/jinja/date.h"
#include "models/chat/jinja/heap.h"
#include "models/chat/jinja/scope.h"
#include "models/chat/jinja/syntax.h"

namespace halfbyte::models::jinja {

class Interpreter {
 public:
  // `heap` and `date` outlive it.
  Interpreter(Heap& heap, const Date& date);

  Heap& heap() noexcept { return heap_; }
  const Date& date() const noexcept { return date_; }
  int line() const noexcept { return line_; }  // of what was run last

  // Errors of all: kInvalidArgument and kUnsupported, without the line.
  Value evaluate(const Expression& expression);
  Flow execute(const Block& block);
  void write(const Text& text);
  // What a block writes, kept from the output.
  Text captured(const Block& block);
  Text take_output() { return std::move(*out_); }

  Value variable(const std::string& name);
  void set(std::string_view name, Value value);
  void assign(const Target& target, const Value& value);

  Call call_of(const WrittenCall& written);
  Value call(const Value& callee, const Call& call);
  Value macro(const Macro& definition);  // as a value, which sees the variables of here

  // Variables that are set while it lives are forgotten with it.
  class NewScope {
   public:
    explicit NewScope(Interpreter& run) : NewScope(run, run.scope_) {}
    NewScope(Interpreter& run, std::shared_ptr<Scope> outer);
    NewScope(const NewScope&) = delete;
    NewScope& operator=(const NewScope&) = delete;
    ~NewScope() { run_.scope_ = std::move(before_); }

   private:
    Interpreter& run_;
    std::shared_ptr<Scope> before_;
  };

 private:
  class Level;
  Value call_macro(const CallableBox& callable, const Call& call);
  void bind(const Macro& macro, const Call& call);
  void bind_more(const Macro& macro, const Call& call, std::size_t named);

  Heap& heap_;
  const Date& date_;
  std::shared_ptr<Scope> scope_;
  Text root_;
  Text* out_ = &root_;
  int line_ = 1;
  int nesting_ = 0;
};

// Text that a filter chain without an object (a filter block's, a set block's) is applied to.
Value filtered(Interpreter& run, const Expression& filter, Value text);

// obj.name and obj[index], as jinja2's sandbox has them: undefined where there is none.
Value attribute_of(Interpreter& run, const Value& object, const std::string& name);
Value item_of(Interpreter& run, const Value& object, const Value& index);
Value slice_of(Interpreter& run, const Value& object, const Value& begin, const Value& end, const Value& step);

// What a for statement goes through, or a filter; a generator is spent by it. Errors: kInvalidArgument: no iterable.
std::vector<Value> items_of(Interpreter& run, const Value& value);
// left in right.
bool contains(Interpreter& run, const Value& whole, const Value& part);

}  // namespace halfbyte::models::jinja
