#include "models/json/instances.h"

namespace nlohmann {

template class basic_json<>;
template class basic_json<ordered_map>;

namespace detail {
template class serializer<json>;
template class serializer<ordered_json>;
}  // namespace detail

}  // namespace nlohmann
