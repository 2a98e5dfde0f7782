#!/usr/bin/env python3
"""Real clients against `halfbyte serve`: the openai package (whole, streamed, asynchronous, tools, a schema made by pydantic, embeddings),
langchain-openai, and curl.

    server_check.py HALFBYTE TINY_LLAMA     77: neither openai nor curl is there
"""
import asyncio
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

# A template that knows tools, in the way of Hermes.
TEMPLATE = """{%- if tools %}[tools]{% for tool in tools %}{{ tool | tojson }}{% endfor %}[/tools]{% endif %}
{%- for message in messages %}<{{ message.role }}>{{ message.content }}{% if message.tool_calls %}{% for call in message.tool_calls %}
{{ call.function.name }}({{ call.function.arguments | tojson }}){% endfor %}{% endif %}</{{ message.role }}>{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}"""
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city", "days"], "additionalProperties": False}}}]
HELLO = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]


def start(program, model):
    process = subprocess.Popen([program, "serve", model, "--port", "0", "--json", "-q", "--name", "tiny"], stdout=subprocess.PIPE, text=True)
    return process, json.loads(process.stdout.readline())["address"]


def check_openai(address):
    import openai
    client = openai.OpenAI(base_url=address + "/v1", api_key="none")
    assert [model.id for model in client.models.list()] == ["tiny"]
    whole = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=12, temperature=0, logprobs=True, top_logprobs=2)
    stream = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=12, temperature=0, stream=True, stream_options={"include_usage": True})
    pieces, usage = "", None
    for chunk in stream:
        usage = chunk.usage or usage
        pieces += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert pieces == whole.choices[0].message.content, (pieces, whole)
    assert usage.completion_tokens == whole.usage.completion_tokens == len(whole.choices[0].logprobs.content) == 12
    text = client.completions.create(model="tiny", prompt=["Once", "upon"], max_tokens=5, n=2)
    assert [choice.index for choice in text.choices] == [0, 1, 2, 3]
    vectors = client.embeddings.create(model="tiny", input=["a", "a", "something else"]).data
    assert vectors[0].embedding == vectors[1].embedding != vectors[2].embedding
    assert abs(sum(value * value for value in vectors[0].embedding) - 1) < 1e-3
    asyncio.run(check_asynchronous(openai.AsyncOpenAI(base_url=address + "/v1", api_key="none"), whole.choices[0].message.content))
    check_forms(client)


def check_forms(client):
    """Schemas, calls of tools, and errors."""
    import openai
    import pydantic

    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=10)
        age: int = pydantic.Field(ge=0, le=120)
        friends: list["Person"] = pydantic.Field(max_length=2)

    for seed in range(10):
        parsed = client.chat.completions.parse(model="tiny", messages=HELLO, response_format=Person, max_tokens=120, seed=seed)
        assert isinstance(parsed.choices[0].message.parsed, Person)
    for choice in ["required", {"type": "function", "function": {"name": "weather"}}]:
        called = client.chat.completions.create(model="tiny", messages=HELLO, tools=TOOLS, tool_choice=choice, max_tokens=80).choices[0]
        call = called.message.tool_calls[0]
        arguments = json.loads(call.function.arguments)
        assert (called.finish_reason, call.function.name) == ("tool_calls", "weather") and 1 <= arguments["days"] <= 7
    answered = [*HELLO, {"role": "assistant", "tool_calls": [call.model_dump()]}, {"role": "tool", "tool_call_id": call.id, "content": "dry"}]
    assert client.chat.completions.create(model="tiny", messages=answered, tools=TOOLS, max_tokens=4).usage.completion_tokens == 4
    for wrong, error in [({"model": "other"}, openai.NotFoundError), ({"temperature": 9}, openai.BadRequestError)]:
        try:
            client.chat.completions.create(**{"model": "tiny", "messages": HELLO, **wrong})
            raise AssertionError(wrong)
        except error as found:
            assert found.body["message"], found


async def check_asynchronous(client, wanted):
    async def one():
        stream = await client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=12, temperature=0, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert await asyncio.gather(*[one() for _ in range(12)]) == [wanted] * 12
    await client.close()


def check_langchain(address):
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    model = ChatOpenAI(model="tiny", base_url=address + "/v1", api_key="none", max_tokens=8, temperature=0)
    assert model.invoke("Hello").content == "".join(piece.content for piece in model.stream("Hello"))
    called = model.bind_tools([{**TOOLS[0]["function"]}], tool_choice="any", max_tokens=80).invoke("Weather?")
    assert called.tool_calls[0]["name"] == "weather"
    vectors = OpenAIEmbeddings(model="tiny", base_url=address + "/v1", api_key="none", check_embedding_ctx_length=False).embed_documents(["a", "b"])
    assert len(vectors) == 2


def check_curl(address):
    body = json.dumps({"messages": HELLO, "max_tokens": 5, "stream": True})
    text = subprocess.run(["curl", "-sN", address + "/v1/chat/completions", "-H", "Content-Type: application/json", "-d", body],
                          capture_output=True, text=True, check=True, timeout=60).stdout
    assert text.endswith("data: [DONE]\n\n"), text


def main(program, tiny_llama):
    checks = {"openai": (importlib.util.find_spec("openai"), check_openai), "langchain_openai": (importlib.util.find_spec("langchain_openai"), check_langchain),
              "curl": (shutil.which("curl"), check_curl)}
    with tempfile.TemporaryDirectory() as scratch:
        original, model = pathlib.Path(scratch, "original"), pathlib.Path(scratch, "tiny")
        shutil.copytree(tiny_llama, original)
        config = json.loads((original / "config.json").read_text(encoding="utf-8"))
        (original / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1024}), encoding="utf-8")  # room for tools
        subprocess.run([program, "quantize", original, model, "-q"], check=True, stdout=subprocess.DEVNULL)
        (model / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
        process, address = start(program, model)
        try:
            for name, (is_there, check) in checks.items():
                if is_there:
                    check(address)
                print(f"{name}: {'passes' if is_there else 'skipped, it is not installed'}")
        finally:
            process.terminate()
            process.wait(30)
    return 0 if any(is_there for is_there, _ in checks.values()) else 77


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
