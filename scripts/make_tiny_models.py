"""Make two tiny Llama models with random weights and one tokenizer, trained here: `tiny`, and `draft` to draft for it.

    python scripts/make_tiny_models.py build/vllm/models

Runs in vLLM's environment, without a network. The tokenizer knows every byte but most control characters: answers have
letters of more than one byte, and now and then a raw line feed inside a JSON string, but not one in every string. Its
chat template puts tools into the prompt. Weights come from fixed seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["<pad>", "<bos>", "<eos>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>"]
THINKING = ["<think>", "</think>"]  # no special tokens, as in DeepSeek's models: vLLM finds them in the text
TEXTS = [
    '{"name": "Ada Lovelace", "age": 36, "tags": ["a", "b"], "ok": true, "x": null}',
    "the quick brown fox jumps over the lazy dog",
    '{"total": 12.5, "currency": "EUR"}',
    '<tool_call>\n{"name": "book", "arguments": {"city": "Oslo", "nights": 2}}\n</tool_call>',
]
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% if tools %}<|system|>{{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] or '' }}"
    "{% if message['tool_calls'] %}{{ message['tool_calls'] | tojson }}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LENGTH = 8192
# How a byte-level tokenizer writes the control characters that are left out: all but the line feed.
CONTROLS = {chr(256 + byte) for byte in range(32) if byte != 10} | {chr(289)}


def main() -> None:
    """Write both models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    tokenizer = make_tokenizer()
    for name, layers, seed in (("tiny", 2, 0), ("draft", 1, 1)):
        tokenizer.save_pretrained(folder / name)
        make_model(len(tokenizer), layers, seed).save_pretrained(folder / name)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Byte pairs over bytes, 640 tokens at most."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=640,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(set(pre_tokenizers.ByteLevel.alphabet()) - CONTROLS),
    )
    tokenizer.train_from_iterator(TEXTS * 50, trainer)
    tokenizer.add_tokens(THINKING)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",  # noqa: S106 - a token of text
        eos_token="<eos>",  # noqa: S106 - a token of text
        pad_token="<pad>",  # noqa: S106 - a token of text
        model_max_length=LENGTH,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_model(vocabulary: int, layers: int, seed: int) -> LlamaForCausalLM:
    """A Llama of 64 dimensions."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=LENGTH,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        tie_word_embeddings=False,
        dtype="bfloat16",
    )
    return LlamaForCausalLM(config).to(torch.bfloat16)


if __name__ == "__main__":
    main()
