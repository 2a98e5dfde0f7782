// One new token's attention over the keys and values of all tokens so far.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "quant/activations.h"
#include "quant/operators/checks.h"
#include "quant/operators/implementations.h"
#include "quant/operators/torch_dtype.h"
#include "quant/operators/weight_matrix.h"
#include "quant/thread_pool.h"

namespace halfbyte::operators {
namespace {

constexpr const char* kDecodeAttention = "decode_attention";

std::string shape_text(const at::Tensor& tensor) { return c10::str(tensor.sizes()); }

// Errors: naming the operand.
void check_shapes(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values) {
  const auto fail = [](const std::string& what) { refuse(kDecodeAttention, what); };
  if (query.dim() != 4 || query.size(2) != 1 || query.size(1) < 1 || query.size(3) < 1)
    fail("query has shape " + shape_text(query) + ", not (batch, heads, 1, head_dim)");
  if (keys.dim() != 4 || keys.size(0) != query.size(0) || keys.size(3) != query.size(3) || keys.size(2) < 1)
    fail("keys have shape " + shape_text(keys) + ", which does not fit query's " + shape_text(query));
  if (keys.size(1) < 1 || query.size(1) % keys.size(1) != 0)
    fail("query's " + std::to_string(query.size(1)) + " heads do not share keys of " + std::to_string(keys.size(1)));
  if (values.sizes() != keys.sizes())
    fail("values have shape " + shape_text(values) + ", not that of keys, " + shape_text(keys));
  check_floating(kDecodeAttention, "query", query);
  check_floating(kDecodeAttention, "keys", keys);
  check_floating(kDecodeAttention, "values", values);
  check_same_device(kDecodeAttention, "keys", keys, "query", query);
  check_same_device(kDecodeAttention, "values", values, "query", query);
}

void check_mask(const at::Tensor& mask, const at::Tensor& keys) {
  const bool fits = mask.dim() == 4 && mask.size(1) == 1 && mask.size(2) == 1 && mask.size(3) == keys.size(2) &&
                    (mask.size(0) == 1 || mask.size(0) == keys.size(0));
  if (!fits || mask.scalar_type() != at::kBool)
    refuse(kDecodeAttention, std::string("mask is ") + c10::toString(mask.scalar_type()) + " of shape " +
                                 shape_text(mask) + ", not bool of (batch or 1, 1, 1, " + std::to_string(keys.size(2)) +
                                 ")");
  check_same_device(kDecodeAttention, "mask", mask, "keys", keys);
}

// Tokens [begin, end).
struct Seen {
  std::int64_t begin, end;
};

// What each of the batch sees, where that is some tokens that follow each other; nothing: for one it is not.
std::optional<std::vector<Seen>> seen_by(const OptionalTensor& mask, std::int64_t batch, std::int64_t tokens) {
  if (!mask) return std::vector<Seen>(static_cast<std::size_t>(batch), {0, tokens});
  const at::Tensor rows = mask->contiguous();
  std::vector<Seen> out;
  for (std::int64_t row = 0; row < batch; ++row) {
    const bool* const first = rows.const_data_ptr<bool>() + (rows.size(0) == 1 ? 0 : row * tokens);
    const bool* const begin = std::find(first, first + tokens, true);
    const bool* const end = std::find(begin, first + tokens, false);
    if (begin == end || std::find(end, first + tokens, true) != first + tokens) return std::nullopt;
    out.push_back({begin - first, end - first});
  }
  return out;
}

// Tokens of a head lie behind each other, wherever heads lie: a cache may have room behind each head's.
at::Tensor with_whole_heads(const at::Tensor& tensor) {
  const bool are_whole = (tensor.size(3) == 1 || tensor.stride(3) == 1) &&
                         (tensor.size(2) == 1 || tensor.stride(2) == tensor.size(3));
  return are_whole ? tensor : tensor.contiguous();
}

// The blocks of keys, or values, that each row sees: a row is a head of one of the batch, which lies whole.
std::vector<std::byte*> blocks_of(const at::Tensor& tensor, const std::vector<Seen>& seen) {
  const std::int64_t heads = tensor.size(1);
  const auto value_bytes = static_cast<std::int64_t>(tensor.element_size());
  auto* const first = const_cast<std::byte*>(bytes_of(tensor));  // attend only reads it
  std::vector<std::byte*> out;
  for (std::int64_t row = 0; row < tensor.size(0) * heads; ++row) {
    const Seen& of_row = seen[static_cast<std::size_t>(row / heads)];
    const std::int64_t head = row / heads * tensor.stride(0) + row % heads * tensor.stride(1);
    for (std::int64_t token = of_row.begin; token < of_row.end; token += quant::kBlockTokens)
      out.push_back(first + (head + token * tensor.size(3)) * value_bytes);
  }
  return out;
}

std::int64_t block_count(const Seen& seen) {
  return (seen.end - seen.begin + quant::kBlockTokens - 1) / quant::kBlockTokens;
}

}  // namespace

// Heads that share keys are a sequence of their own to quant::attend, whose blocks have one key head each.
at::Tensor cpu::decode_attention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                                 double scale, const OptionalTensor& mask) {
  check_shapes(query, keys, values);
  if (mask) check_mask(*mask, keys);
  const std::int64_t batch = query.size(0), heads = query.size(1), kv_heads = keys.size(1);
  const std::optional<std::vector<Seen>> seen = seen_by(mask, batch, keys.size(2));
  if (!seen) return composite::decode_attention(query, keys, values, scale, mask);
  const at::Tensor queries = query.contiguous();
  const at::Tensor all_keys = with_whole_heads(keys), all_values = with_whole_heads(values);
  at::Tensor result = at::empty({batch, 1, heads, query.size(3)}, query.options());
  const std::vector<std::byte*> key_blocks = blocks_of(all_keys, *seen), value_blocks = blocks_of(all_values, *seen);
  std::vector<quant::SequenceBlocks> sequences;
  for (std::int64_t row = 0, block = 0; row < batch * kv_heads; ++row) {
    const Seen& of_row = (*seen)[static_cast<std::size_t>(row / kv_heads)];
    sequences.push_back(
        {row, 1, of_row.end - of_row.begin - 1, key_blocks.data() + block, value_blocks.data() + block});
    block += block_count(of_row);
  }
  quant::Attend attend{};
  attend.sequences = sequences.data();
  attend.count = static_cast<std::int64_t>(sequences.size());
  attend.heads = heads / kv_heads;
  attend.kv_heads = 1;
  attend.head_dim = query.size(3);
  attend.scale = static_cast<float>(scale);
  attend.queries = bytes_of(queries);
  attend.query_dtype = check_floating(kDecodeAttention, "query", queries);
  attend.key_dtype = check_floating(kDecodeAttention, "keys", all_keys);
  attend.value_dtype = check_floating(kDecodeAttention, "values", all_values);
  attend.output = static_cast<std::byte*>(result.mutable_data_ptr());
  attend.output_dtype = attend.query_dtype;
  const quant::AmongOpenMp among_openmp;
  quant::attend(attend);
  return result;
}

at::Tensor composite::decode_attention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                                       double scale, const OptionalTensor& mask) {
  check_shapes(query, keys, values);
  if (mask) check_mask(*mask, keys);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::Tensor sharing = query.reshape({query.size(0), keys.size(1), query.size(1) / keys.size(1), query.size(3)});
  at::Tensor scores = at::matmul(sharing.to(at::kFloat), keys.to(at::kFloat).transpose(2, 3)).mul(scale);
  if (mask) scores = scores.masked_fill(mask->logical_not(), -std::numeric_limits<double>::infinity());
  at::Tensor weights = at::softmax(scores, -1);
  if (mask) weights = weights.masked_fill(mask->logical_not(), 0);  // also where a sequence sees no key at all
  const at::Tensor result = at::matmul(weights, values.to(at::kFloat));
  return result.to(query.scalar_type()).reshape({query.size(0), 1, query.size(1), query.size(3)});
}

// Where a gradient is wanted, the composite, which has one.
at::Tensor autograd::decode_attention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                                      double scale, const OptionalTensor& mask) {
  const bool wants = query.requires_grad() || keys.requires_grad() || values.requires_grad();
  if (wants && at::GradMode::is_enabled()) return composite::decode_attention(query, keys, values, scale, mask);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return operators::decode_attention(query, keys, values, scale, mask);
}

}  // namespace halfbyte::operators
