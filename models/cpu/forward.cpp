#include "models/cpu/forward.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <halfbyte/linear.h>

#include "models/cpu/costs.h"
#include "models/cpu/experts.h"
#include "models/cpu/fusible.h"
#include "models/cpu/gates.h"
#include "models/cpu/multiply.h"
#include "models/cpu/workspace.h"
#include "models/modules/decoder.h"
#include "models/modules/pass_watch.h"
#include "models/parallel/summed.h"
#include "quant/operators/torch_dtype.h"
#include "quant/operators/translate.h"

namespace halfbyte::models::cpu {
namespace {

// By QueryKeyNorm; the first without norms.
constexpr quant::HeadNorm kHeadNorms[] = {quant::HeadNorm::kEachHead, quant::HeadNorm::kEachHead,
                                          quant::HeadNorm::kEachTurnedHead, quant::HeadNorm::kAllHeads};

// One pass over all layers. The residual sum of a layer's half waits as `delta` for the next norm, which adds it.
class Forward {
 public:
  Forward(const Decoder& decoder, Workspace& workspace, const at::Tensor& tokens, std::span<const StepRow> rows,
          const at::Tensor& input)
      : decoder_(decoder),
        work_(workspace),
        ids_(tokens),
        rows_(rows),
        hidden_(decoder.hidden_size()),
        count_(tokens.numel()) {
    set_rows();
    stream_ = work_.stream.floats(count_ * hidden_);
    base_ = stream_;
    if (input.defined())
      std::copy_n(input.const_data_ptr<float>(), count_ * hidden_, stream_);
    else
      embed(tokens.const_data_ptr<std::int64_t>());
  }

  at::Tensor run() {
    for (std::size_t i = 0; i < work_.model.layers.size(); ++i) {
      const std::int64_t index = decoder_.first_layer() + static_cast<std::int64_t>(i);
      const auto attempt = [&] {
        return decoder_.path() + "." + std::to_string(index) + ", given " + std::to_string(count_) + " tokens";
      };
      const auto scope = WorkScope::layer(index);
      translated(attempt, [&] { layer(work_.model.layers[i]); });
      PassWatch::layer_done(static_cast<std::int64_t>(i) + 1, static_cast<std::int64_t>(work_.model.layers.size()));
    }
    at::Tensor out = at::empty({count_, hidden_}, at::kFloat);
    normalise(work_.model.norm, nullptr, out.mutable_data_ptr<float>());
    return out;
  }

 private:
  // Where each row's tokens stand, and the cosines and sines of their positions.
  void set_rows() {
    work_.sequences.clear();
    std::int64_t first = 0;
    for (const StepRow& row : rows_) {
      work_.sequences.push_back({first, row.tokens, row.session->length(), nullptr, nullptr});
      first += row.tokens;
    }
    work_.turns.resize(rows_.front().session->ropes());
    for (std::size_t rope = 0; rope < work_.turns.size(); ++rope) set_turns(rope, work_.turns[rope]);
  }

  void set_turns(std::size_t rope, TurnsView& turns) {
    turns.cosines.clear();
    turns.sines.clear();
    turns.tables.clear();
    for (const StepRow& row : rows_) {
      std::int64_t first = row.session->length();
      auto table = row.session->fixed_rotary(rope, first + row.tokens);
      if (!table) {
        const RotaryTable own = row.session->rotary(rope, first, row.tokens);
        table = std::make_shared<const RotaryTable>(RotaryTable{own.cosine.contiguous(), own.sine.contiguous()});
        first = 0;
      }
      turns.pairs = table->cosine.size(-1);
      turns.cosines.push_back(table->cosine.const_data_ptr<float>() + first * turns.pairs);
      turns.sines.push_back(table->sine.const_data_ptr<float>() + first * turns.pairs);
      turns.tables.push_back(std::move(table));
    }
  }

  void embed(const std::int64_t* ids) {
    const WorkScope work(WorkKind::kEmbedding, [&] { return cost_of_rows(work_.model.embedding, count_); });
    const auto scale = static_cast<float>(decoder_.embedding().scale());
    for (std::int64_t i = 0; i < count_; ++i) {
      float* row = stream_ + i * hidden_;
      quant::dequantize(work_.model.embedding, ids[i], ids[i] + 1, reinterpret_cast<std::byte*>(row), Dtype::kFloat32);
      for (std::int64_t column = 0; scale != 1.0f && column < hidden_; ++column) row[column] *= scale;
    }
  }

  // Adds what waits to the stream, and writes its norm for `next` to multiply, as float32 where that is asked for.
  void normalise(const quant::Norm& norm, const ProductsView* next, float* normalised) {
    const WorkScope work(WorkKind::kNorms);
    quant::ResidualNorm a{};
    a.rows = count_;
    a.size = hidden_;
    a.stream = stream_;
    a.base = base_;
    a.delta = delta_;
    a.delta_norm = delta_norm_;
    a.delta_scale = delta_scale_;
    a.norm = norm;
    a.normalised = normalised;
    if (next) {
      a.output_dtype = next->operand;
      a.output = work_.operand.at_least(bytes_of_values(count_ * hidden_, next->operand));
    }
    quant::residual_norm(a);
  }

  void wait(const float* delta, const quant::Norm& norm, const DecoderLayer& layer) {
    delta_ = delta;
    delta_norm_ = norm;
    delta_scale_ = static_cast<float>(layer.residual_scale());
    base_ = layer.is_residual_normalised() ? normalised_ : stream_;
  }

  // The results are in `outputs`, one a product.
  void multiply(ProductsView& view, const std::byte* input, Buffer* outputs) {
    cpu::multiply(view, input, count_, work_.reordered, outputs);
  }

  void layer(LayerView& view) {
    const bool is_parallel = view.layer->is_parallel(), is_kept = is_parallel || view.layer->is_residual_normalised();
    const bool has_modules = !view.mlp || !view.attention;
    normalised_ = is_kept || has_modules ? work_.normalised.floats(count_ * hidden_) : nullptr;
    normalise(view.input_norm, view.attention ? &view.inputs : nullptr,
              is_kept || !view.attention ? normalised_ : nullptr);
    wait(view.attention ? attend(view) : mix(*view.layer), view.attention_output_norm, *view.layer);
    if (is_parallel)
      add_beside(view);
    else
      normalise(view.mlp_norm, view.mlp ? &view.gate_up : nullptr, is_kept || !view.mlp ? normalised_ : nullptr);
    const float* result = view.mlp ? feed_forward(view) : experts(view);
    wait(result, view.mlp_output_norm, *view.layer);
    if (view.layer->has_more()) complete(*view.layer);
  }

  // Adds what waits to the stream, and does the rest of the layer there.
  void complete(const DecoderLayer& layer) {
    normalise({}, nullptr, nullptr);
    delta_ = nullptr;
    base_ = stream_;
    const WorkScope work(WorkKind::kModules);
    for (const ModulePart& part : parts()) {
      const at::Tensor stream = of_part(stream_, part);
      stream.copy_(layer.completed(stream, part.pass));
    }
  }

  // Rows of equally many tokens, as modules take them.
  struct ModulePart {
    std::int64_t first;  // of the tokens
    Pass pass;
  };

  // Made when the first module needs them.
  std::span<const ModulePart> parts() {
    if (!parts_.empty()) return parts_;
    for (const EqualRows& equal : equal_rows(rows_)) {
      std::vector<Session*> sessions = sessions_of(rows_, equal);
      const auto rows = static_cast<std::int64_t>(sessions.size());
      const at::Tensor ids = ids_.narrow(0, equal.first, rows * equal.tokens).view({rows, equal.tokens});
      parts_.push_back({equal.first, decoder_.has_layer_inputs()
                                         ? decoder_.begin(ids, std::move(sessions)).pass
                                         : decoder_.make_pass(std::move(sessions), equal.tokens)});
    }
    return parts_;
  }

  // Shape: (tokens of all rows, hidden_size) -> (rows, tokens, hidden_size).
  at::Tensor of_part(float* values, const ModulePart& part) const {
    return at::from_blob(values + part.first * hidden_, {part.pass.rows, part.pass.tokens, hidden_}, at::kFloat);
  }

  // What runs as a module takes what was normalised, and gives what waits.
  const float* mix(const DecoderLayer& layer) {
    const WorkScope work(WorkKind::kModules);
    float* const out = work_.delta.floats(count_ * hidden_);
    for (const ModulePart& part : parts())
      of_part(out, part).copy_(layer.mixer().forward(of_part(normalised_, part), part.pass));
    return whole(layer.attention_group());
  }

  const float* experts(const LayerView& view) {
    if (view.experts && run_experts(*view.experts, normalised_, count_, work_.experts, work_.delta))
      return whole(view.layer->mlp_group());
    const WorkScope work(WorkKind::kModules);
    const at::Tensor x = at::from_blob(normalised_, {1, count_, hidden_}, at::kFloat);
    experts_result_ = view.layer->feed_forward().forward(x).to(at::kFloat).contiguous();
    if (Group* const group = view.layer->mlp_group()) experts_result_ = summed(*group, experts_result_);
    return experts_result_.const_data_ptr<float>();
  }

  // Adds what waits to the stream, and has the MLP read what the attention has read.
  void add_beside(const LayerView& view) {
    normalise({}, nullptr, nullptr);
    if (!view.mlp) return;
    std::byte* const operand = work_.operand.at_least(bytes_of_values(count_ * hidden_, view.gate_up.operand));
    quant::convert(reinterpret_cast<const std::byte*>(normalised_), Dtype::kFloat32, operand, view.gate_up.operand,
                   count_ * hidden_);
  }

  // Where queries, keys and values stand in what the projections gave.
  std::array<quant::HeadRows, 3> heads_of(const Attention& a) {
    const std::int64_t d = a.head_dim(), queries = a.heads() * d, keys = a.kv_heads() * d;
    const std::int64_t gated = a.has_output_gate() ? 2 : 1;
    const float* first = work_.products[0].floats(0);
    switch (a.layout()) {
      case QkvLayout::kSeparate: {
        const float* const key = work_.products[1].floats(0);
        const float* const value = a.are_values_keys() ? key : work_.products[2].floats(0);
        return {{{first, gated * queries, gated * d}, {key, keys, d}, {value, keys, d}}};
      }
      case QkvLayout::kFused: {
        const std::int64_t all = queries + 2 * keys;
        return {{{first, all, d}, {first + queries, all, d}, {first + queries + keys, all, d}}};
      }
      case QkvLayout::kFusedPerHead:
        break;
    }
    return {{{first, 3 * queries, 3 * d}, {first + d, 3 * queries, 3 * d}, {first + 2 * d, 3 * queries, 3 * d}}};
  }

  const float* attend(LayerView& view) {
    multiply(view.inputs, work_.operand.at_least(0), work_.products);
    const Attention& attention = *view.attention;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      KeyValueCache& cache = attention.cache(*rows_[i].session);
      quant::SequenceBlocks& sequence = work_.sequences[i];
      if (attention.has_own_keys()) cache.make_room(sequence.past, sequence.tokens, *decoder_.compute().operand);
      sequence.keys = cache.key_blocks();
      sequence.values = cache.value_blocks();
    }
    place(view, attention);
    multiply(view.output, attended(view, attention), &work_.delta);
    return whole(view.layer->attention_group());
  }

  // What placing heads and attending have in common: the tokens, the heads, and the cache.
  template <class Call>
  Call over_cache(const Attention& attention) {
    Call a{};
    a.sequences = work_.sequences.data();
    a.count = static_cast<std::int64_t>(work_.sequences.size());
    a.heads = attention.heads();
    a.kv_heads = attention.kv_heads();
    a.head_dim = attention.head_dim();
    a.query_dtype = a.key_dtype = a.value_dtype = from_torch(*decoder_.compute().operand).value_or(Dtype::kFloat32);
    if (decoder_.compute().key_values == KeyValues::kInt8) a.key_dtype = a.value_dtype = Dtype::kInt8;
    return a;
  }

  void place(const LayerView& view, const Attention& attention) {
    const WorkScope work(WorkKind::kPlaceHeads);
    const auto [query, key, value] = heads_of(attention);
    auto a = over_cache<quant::PlaceHeads>(attention);
    if (!attention.has_own_keys()) a.kv_heads = 0;
    a.query = query;
    a.key = key;
    a.value = value;
    a.query_norm = view.query_norm;
    a.key_norm = view.key_norm;
    a.value_norm = view.value_norm;
    a.growth = static_cast<float>(attention.growth().beta);
    a.growth_length = attention.growth().length;
    a.growth_shift = attention.growth().shift;
    a.norm = kHeadNorms[static_cast<std::size_t>(attention.norm())];
    const bool turns_heads = attention.rope() != kNoRope;
    const TurnsView& turns = work_.turns[turns_heads ? attention.rope() : 0];
    a.pairs = turns_heads ? turns.pairs : 0;
    a.is_interleaved = attention.is_interleaved();
    a.cosines = turns.cosines.data();
    a.sines = turns.sines.data();
    a.queries = work_.queries.at_least(bytes_of_values(count_ * a.heads * a.head_dim, a.query_dtype));
    if (!quant::place_heads(a)) rows_.front().session->note_not_finite();
  }

  const std::byte* attended(const LayerView& view, const Attention& attention) {
    auto a = over_cache<quant::Attend>(attention);
    a.scale = static_cast<float>(attention.scale());
    a.softcap = static_cast<float>(attention.softcap());
    a.window = attention.reach().window;
    a.is_chunked = attention.reach().is_chunked;
    a.sinks = view.sinks.empty() ? nullptr : view.sinks.data();
    a.queries = work_.queries.at_least(0);
    const std::int64_t values_of_all = count_ * a.heads * a.head_dim;
    std::byte* const output = work_.operand.at_least(bytes_of_values(values_of_all, view.output.operand));
    a.output_dtype = attention.has_output_gate() ? Dtype::kFloat32 : view.output.operand;
    // The products of keys stand in the cache by now.
    const bool is_gated = attention.has_output_gate();
    a.output = is_gated ? reinterpret_cast<std::byte*>(work_.products[1].floats(values_of_all)) : output;
    attend_in_slices(a);
    if (is_gated) gate(attention, view.output.operand, output);
    return output;
  }

  // What the heads gave, times the sigmoid of the gates beside their queries.
  void gate(const Attention& attention, Dtype dtype, std::byte* output) {
    const WorkScope work(WorkKind::kGates);
    quant::GateRows a{};
    a.gate = quant::Gate::kSigmoid;
    a.rows = count_ * attention.heads();
    a.size = a.up_stride = attention.head_dim();
    a.stride = 2 * a.size;
    a.x = work_.products[0].floats(0) + a.size;
    a.up = work_.products[1].floats(0);
    a.output_dtype = dtype;
    a.output = output;
    quant::gate_rows(a);
  }

  // A sequence's tokens some at a time where they look far back.
  void attend_in_slices(quant::Attend a) {
    const WorkScope work(WorkKind::kAttention, [&] { return cost_of(a); });
    PassWatch::check();
    const auto step_of = [&](const quant::SequenceBlocks& row) {
      return rows_between_looks(row.tokens, 2 * a.heads * a.head_dim * (row.past + row.tokens));
    };
    if (std::ranges::all_of(work_.sequences, [&](const auto& row) { return step_of(row) >= row.tokens; }))
      return quant::attend(a);
    for (const quant::SequenceBlocks& row : work_.sequences) {
      const std::int64_t step = step_of(row);
      for (std::int64_t begin = 0; begin < row.tokens; begin += step) {
        PassWatch::check();
        quant::SequenceBlocks slice = row;
        slice.first += begin;
        slice.past += begin;
        slice.tokens = std::min(step, row.tokens - begin);
        a.sequences = &slice;
        a.count = 1;
        quant::attend(a);
      }
    }
  }

  const float* feed_forward(LayerView& view) {
    multiply(view.gate_up, work_.operand.at_least(0), work_.products);
    const bool is_fused = view.gate_up.count == 1;
    const std::int64_t width = view.gate_up.out_features(0);
    const std::byte* const between =
        gated({view.mlp->activation(), count_, is_fused ? width / 2 : width, view.down.operand},
              work_.products[0].floats(0), is_fused ? nullptr : work_.products[1].floats(0), work_.operand);
    multiply(view.down, between, &work_.delta);
    return whole(view.layer->mlp_group());
  }

  // What waits, once the parts of all ranks are added.
  const float* whole(Group* group) {
    float* const out = work_.delta.floats(0);
    if (!group) return out;
    const WorkScope work(WorkKind::kRankSums);
    group->sum({out, static_cast<std::size_t>(count_ * hidden_)});
    return out;
  }

  const Decoder& decoder_;
  Workspace& work_;
  const at::Tensor& ids_;
  std::span<const StepRow> rows_;
  std::int64_t hidden_;
  std::int64_t count_;         // tokens of all rows
  at::Tensor experts_result_;  // of a module
  std::vector<ModulePart> parts_;
  float* stream_ = nullptr;
  float* normalised_ = nullptr;  // null: nobody reads it
  const float* base_ = nullptr;  // what `delta_` is added to
  const float* delta_ = nullptr;
  quant::Norm delta_norm_;
  float delta_scale_ = 1.0f;
};

}  // namespace

std::optional<at::Tensor> forward(const Decoder& decoder, const at::Tensor& tokens, std::span<const StepRow> rows,
                                  const at::Tensor& input) {
  if (!is_fusible(decoder, tokens, input) || !rows.front().session->device().is_cpu()) return std::nullopt;
  const Workspaces::Lease workspace(decoder.workspaces());
  if (!view(decoder, (*workspace).model)) return std::nullopt;
  decoder.workspaces().note_pass();
  return Forward(decoder, *workspace, tokens, rows, input).run();
}

}  // namespace halfbyte::models::cpu
