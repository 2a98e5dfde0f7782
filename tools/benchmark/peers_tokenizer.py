#!/usr/bin/env python3
"""Writes a SentencePiece model of 32 000 pieces that nobody trained: a random model needs one to become GGUF.

    peers_tokenizer.py FILE [PIECES]

Letters stand alone, so a word of six is eight tokens: the beginning of text, the space before the word, the letters.
"""
import string
import sys

from sentencepiece import sentencepiece_model_pb2 as proto

def main(path, count=32000):
    model = proto.ModelProto()
    kinds = proto.ModelProto.SentencePiece
    special = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)]
    pieces = special + [(f"<0x{byte:02X}>", kinds.BYTE) for byte in range(256)]
    pieces += [(letter, kinds.NORMAL) for letter in "\u2581" + string.ascii_letters + string.digits]
    pieces += [(f"\u2581piece{number}", kinds.NORMAL) for number in range(count - len(pieces))]
    for index, (text, kind) in enumerate(pieces):
        model.pieces.add(piece=text, score=-float(index), type=kind)
    model.trainer_spec.model_type = proto.TrainerSpec.BPE
    model.trainer_spec.vocab_size = count
    model.trainer_spec.byte_fallback = True
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = True
    with open(path, "wb") as file:
        file.write(model.SerializeToString())


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.strip())
    main(sys.argv[1], *map(int, sys.argv[2:]))
