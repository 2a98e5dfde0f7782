// What is made for one request after its handler has returned.
#pragma once

#include <memory>

namespace halfbyte::server {

class Job {
 public:
  virtual ~Job() = default;
  // The client has gone, or the server goes: nobody wants it.
  virtual void cancel() = 0;
  // Gone when the job is, and all that it holds.
  void set_alive(std::shared_ptr<void> alive) { alive_ = std::move(alive); }

 private:
  std::shared_ptr<void> alive_;
};

}  // namespace halfbyte::server
