// Long calls from Python: without the interpreter's lock, and ended by Ctrl-C.
#pragma once

#include <cstdint>
#include <exception>
#include <stop_token>

#include <pybind11/pybind11.h>

namespace halfbyte::python {

// While one lives, other threads of the interpreter run; Ctrl-C asks for a stop, and is raised when the call is over.
// Made by the thread that has the lock.
class Running {
 public:
  Running() = default;
  std::stop_token stop() const { return stop_.get_token(); }
  // To be called now and then, from any thread: asks Python with the lock, and looks for Ctrl-C. What is raised ends
  // the call: false.
  template <class Ask>
  bool asked(const Ask& ask) {
    const pybind11::gil_scoped_acquire lock;
    if (raised_) return false;
    try {
      if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
      return ask();
    } catch (pybind11::error_already_set&) {
      raised_ = std::current_exception();
      stop_.request_stop();
      return false;
    }
  }
  // The same of a callable that is told how much is done; None and False: nobody is; True: a bar that is shown.
  void step(const pybind11::object& progress, std::uint64_t done, std::uint64_t total) {
    asked([&] {
      if (progress.is_none() || progress.is(pybind11::bool_(false))) return true;
      if (!told_) told_ = progress.is(pybind11::bool_(true)) ? bar() : progress;
      told_(done, total);
      return true;
    });
  }
  // Runs it without the lock, and raises what a step raised.
  template <class Work>
  auto run(const Work& work) {
    try {
      const pybind11::gil_scoped_release unlocked;
      return work();
    } catch (...) {
      finish();
      throw;
    }
  }
  // For calls that a stop does not end with an error.
  void finish() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  static pybind11::object bar() { return pybind11::module_::import("halfbyte._progress").attr("Bar")(); }

  pybind11::object told_;
  std::stop_source stop_;
  std::exception_ptr raised_;
};

}  // namespace halfbyte::python
