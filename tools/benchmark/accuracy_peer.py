"""AutoRound's and bitsandbytes's side of accuracy.py, under a Python that has them.

    accuracy_peer.py autoround MODEL DST SEQUENCES GROUP_SIZE ITERATIONS    4 bits, symmetric; a JSON list of lists of token ids
    accuracy_peer.py bitsandbytes MODEL DST                                 nf4 in blocks of 64
"""
import json
import os
import pathlib
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TQDM_DISABLE="1")
BATCH = 8


def autoround(model, destination, sequences, group_size, iterations):
    import torch
    from auto_round import AutoRound
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ids = torch.tensor(json.loads(pathlib.Path(sequences).read_text(encoding="utf-8")))
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    rounded = AutoRound(loaded, AutoTokenizer.from_pretrained(model), bits=4, group_size=int(group_size), sym=True, iters=int(iterations),
                        dataset=list(ids.split(BATCH)), seqlen=ids.shape[1], nsamples=ids.shape[0], batch_size=BATCH, device_map="cpu")
    rounded.quantize_and_save(destination, format="auto_round")


def bitsandbytes(model, destination):
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    AutoModelForCausalLM.from_pretrained(model, quantization_config=config, dtype=torch.bfloat16, device_map="cpu").save_pretrained(destination)


if __name__ == "__main__":
    {"autoround": autoround, "bitsandbytes": bitsandbytes}[sys.argv[1]](*sys.argv[2:])
