"""OpenAI's own Python package against a running server: sync, async, streams, structure, tools, errors.

    foretoken serve -m qwen2.5-coder-1.5b &
    python benches/openai_client.py http://127.0.0.1:8080

Needs `pip install openai`. What a model's template cannot do (tools) is said and left out."""

import asyncio
import json
import sys

import openai

URL = sys.argv[1].rstrip("/") + "/v1"
client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
model = client.models.list().data[0].id
QUESTION = [{"role": "user", "content": "Name three colours."}]
SHARED = dict(model=model, seed=1, max_completion_tokens=60)


def whole_and_streamed():
    whole = client.chat.completions.create(messages=QUESTION, logprobs=True, top_logprobs=2, **SHARED)
    text = whole.choices[0].message.content
    assert text and whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    stream = client.chat.completions.create(
        messages=QUESTION, stream=True, stream_options={"include_usage": True}, **SHARED)
    pieces, usage = [], None
    for chunk in stream:
        pieces += [choice.delta.content or "" for choice in chunk.choices]
        usage = chunk.usage or usage
    assert "".join(pieces) == text and usage == whole.usage or usage.total_tokens == whole.usage.total_tokens
    for draft in ["none", "suffix+recycle"]:
        again = client.chat.completions.create(messages=QUESTION, extra_body={"draft": draft}, **SHARED)
        assert again.choices[0].message.content == text, draft


def completions():
    answer = client.completions.create(model=model, prompt=["One, two,", "A, B,"], max_tokens=8, temperature=0, logprobs=1, echo=True, n=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[0].text.startswith("One, two,") and answer.choices[2].text.startswith("A, B,")
    assert answer.choices[0].logprobs.token_logprobs[0] is None


async def many():
    many = openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0)
    ask = lambda: many.chat.completions.create(messages=QUESTION, **SHARED)
    answers = await asyncio.gather(*[ask() for _ in range(6)])
    assert len({answer.choices[0].message.content for answer in answers}) == 1, "the same request, the same text"
    stream = await many.chat.completions.create(messages=QUESTION, stream=True, **SHARED)
    async for _ in stream:
        break
    await stream.close()


def structure():
    schema = {
        "type": "object",
        "properties": {"colours": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 3, "maxItems": 3}},
        "required": ["colours"], "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "colours", "schema": schema, "strict": True}}
    answer = client.chat.completions.create(messages=QUESTION, response_format=form, **{**SHARED, "max_completion_tokens": 200})
    assert len(json.loads(answer.choices[0].message.content)["colours"]) == 3


TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"], "additionalProperties": False},
}}


def tools():
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    asked = dict(messages=messages, tools=[TOOL], **SHARED)
    try:
        answer = client.chat.completions.create(tool_choice="required", **asked)
    except openai.BadRequestError as error:
        assert error.param == "tools", error
        print("tools: not with this model")
        return
    assert answer.choices[0].finish_reason == "tool_calls", answer
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather" and "city" in json.loads(call.function.arguments)
    messages += [answer.choices[0].message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "Rain, 12 degrees"}]
    said = client.chat.completions.create(**asked)
    assert said.choices[0].message.content
    named = {"type": "function", "function": {"name": "get_weather"}}
    asked["messages"] = messages[:1]
    whole = client.chat.completions.create(tool_choice=named, **asked).choices[0].message.tool_calls[0].function
    deltas = []
    for chunk in client.chat.completions.create(tool_choice=named, stream=True, extra_body={"draft": "none"}, **asked):
        for choice in chunk.choices:
            deltas += choice.delta.tool_calls or []
    assert deltas[0].id and deltas[0].function.name == "get_weather" and deltas[0].function.arguments == ""
    assert len(deltas) > 2, "arguments come as they are written"
    assert "".join(delta.function.arguments for delta in deltas) == whole.arguments and json.loads(whole.arguments)
    # The package's own way to put the pieces together.
    with client.chat.completions.stream(tool_choice=named, **asked) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.delta" in events and "tool_calls.function.arguments.done" in events, set(events)
    assert final.finish_reason == "tool_calls" and final.message.tool_calls[0].function.arguments == whole.arguments


def errors():
    for wrong, kind in [
        (dict(messages=QUESTION, model="gpt-4"), openai.NotFoundError),
        (dict(messages=QUESTION, model=model, temperature=-1), openai.BadRequestError),
        (dict(messages=QUESTION, model=model, reasoning_effort="low"), openai.BadRequestError),
        (dict(messages=[{"role": "user", "content": "a " * 100_000}], model=model), openai.BadRequestError),
    ]:
        try:
            client.chat.completions.create(**wrong)
        except kind as error:
            assert error.param or error.code, error
        else:
            raise AssertionError(f"{wrong} was accepted")


for test in (whole_and_streamed, completions, structure, tools, errors):
    test()
    print(f"{test.__name__}: good")
asyncio.run(many())
print("many: good")
