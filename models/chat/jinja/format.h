// Python's two ways of filling values into a text: '%s' % x and '{}'.format(x).
#pragma once

#include "models/chat/jinja/callable.h"
#include "models/chat/jinja/heap.h"

namespace halfbyte::models::jinja {

class Interpreter;

// `values`: a tuple of some, or one. Errors: kInvalidArgument for too few or too many; kUnsupported for forms other
// than %s %r %d %i %f %x with a width and a precision.
Text formatted_by_percent(Interpreter& run, const Text& form, const Value& values);

// {}, {0}, {name}. Errors: the same; kUnsupported for what follows a name within the braces.
Text formatted_by_braces(Interpreter& run, const Text& form, const Call& call);

}  // namespace halfbyte::models::jinja
