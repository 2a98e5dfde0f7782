set(HALFBYTE_CORE_MODELS_TESTS models/architecture_test.cpp models/chat_template_test.cpp models/dtype_rules_test.cpp
                               models/families_config_test.cpp models/sentencepiece_test.cpp models/tokenizers_huggingface_test.cpp)
