set(HALFBYTE_CORE_MODELS_TESTS
    models/architectures/architecture_test.cpp
    models/architectures/families_config_test.cpp
    models/chat/chat_template_test.cpp
    models/dtype_rules_test.cpp
    models/tokenizers/fixtures_test.cpp
    models/tokenizers/huggingface_test.cpp
    models/tokenizers/sentencepiece_test.cpp)
